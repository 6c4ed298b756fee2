"""Golden values: what a small network of each attention computes and learns, as text.

    python -m tests.golden.network

writes `tests/golden/<attention>.txt` again. Do that only for a change that is meant to alter
results, and let the diff show by how much.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from models.classifier import Classifier
from models.config import ModelConfig
from models.mechanisms import ATTENTIONS

FOLDER = Path(__file__).parent
STEPS = 5
#: So small that a document of 60 tokens meets all of each formula.
PARAMETERS: dict[str, dict[str, Any]] = {
    "linformer": {"k": 8, "max_length": 64},
    "nystromformer": {"landmarks": 8, "conv_kernel": 5},
    "performer": {"features": 16},
    "skyformer": {"landmarks": 8},
    "infinite_former": {"segment": 16, "basis": 8, "samples": 16},
    "longformer": {"window": 8, "global_tokens": 2},
    "bigbird": {"block": 8, "random": 1},
    "sparse": {"stride": 8},
    "blockwise": {"blocks": 3},
    "reformer": {"buckets": 4, "chunk": 8},
    "informer": {"queries": 2, "keys": 2},
}
#: Variants with code of their own, by the name of their file.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, PARAMETERS.get(name, {})) for name in ATTENTIONS.names()},
    "performer-relu": ("performer", {"features": 16, "feature_map": "relu"}),
    "performer-trigonometric": ("performer", {"features": 16, "feature_map": "trigonometric"}),
    "sparse-fixed": ("sparse", {"stride": 8, "pattern": "fixed", "summary": 2}),
    "infinite_former-sticky": (
        "infinite_former",
        {"segment": 16, "basis": 8, "samples": 16, "sticky": True},
    ),
    "longformer-own_projections": (
        "longformer",
        {"window": 8, "global_tokens": 2, "own_projections": True},
    ),
}


def golden_values(name: str) -> dict[str, list[float]]:
    """Logits, losses of a few steps, and logits after them.

    In float64 and from weights that NumPy draws, so that machines agree to many digits.
    """
    attention, params = VARIANTS[name]
    config = ModelConfig(
        60, 3, attention, params, width=32, hidden=32, dropout=0.0, convolution=3, position_gain=0.2
    )
    model = Classifier(config).double()
    random = np.random.default_rng(0)
    with torch.no_grad():
        for _, parameter in sorted(model.named_parameters()):
            drawn = random.standard_normal(tuple(parameter.shape)) * 0.3
            parameter.copy_(torch.from_numpy(drawn))
    ids = torch.from_numpy(random.integers(0, 60, (3, 60)))
    lengths, targets = torch.tensor([60, 33, 7]), torch.tensor([0, 1, 2])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    found: dict[str, list[float]] = {"logits": _numbers(model.eval()(ids, lengths))}
    losses = []
    for _ in range(STEPS):
        loss = functional.cross_entropy(model.train()(ids, lengths), targets)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss)
    found["losses"] = _numbers(torch.stack(losses))
    found["logits after training"] = _numbers(model.eval()(ids, lengths))
    return found


def _numbers(values: torch.Tensor) -> list[float]:
    return [float(value) for value in values.detach().flatten()]


def read(name: str) -> dict[str, list[float]]:
    """The stored values."""
    lines = (FOLDER / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    parts = (line.partition(":") for line in lines)
    return {title: [float(number) for number in rest.split()] for title, _, rest in parts}


def write(name: str) -> None:
    """Store what is computed now."""
    lines = [
        f"{title}: {' '.join(f'{value:.7f}' for value in values)}\n"
        for title, values in golden_values(name).items()
    ]
    (FOLDER / f"{name}.txt").write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    for each in VARIANTS:
        write(each)
