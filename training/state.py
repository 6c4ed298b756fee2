"""A run's state on disk, so that a killed run goes on where it was and ends the same.

One safetensors file holds the weights, their average, the best ones and the optimizer's
moments; its header holds the position as JSON. Randomness is drawn from the seed and the
step, so no generator has to be saved.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from training.errors import RunError
from training.storage import written_beside

FORMAT = 1


@dataclass
class Progress:
    """Where a run is.

    step         steps done
    tokens       tokens trained on
    phase        0 for the first crops, 1 for the last, longer ones
    epoch        passes over the training documents in this phase
    position     batches done of this pass
    stale        checks since the last gain
    seconds      processor time spent, over all the runs that were killed
    checks       what each check found
    best         the smallest validation loss so far
    scaler       state of the gradient scaler, on a GPU without bfloat16
    """

    step: int = 0
    tokens: int = 0
    phase: int = 0
    epoch: int = 0
    position: int = 0
    stale: int = 0
    seconds: float = 0.0
    checks: list[dict[str, float]] = field(default_factory=list)
    best: float | None = None
    scaler: dict[str, Any] = field(default_factory=dict)


def save_state(
    path: Path, identity: Mapping[str, Any], progress: Progress, tensors: Mapping[str, Tensor]
) -> None:
    """Write the state, whole or not at all."""
    header = {"format": FORMAT, "identity": dict(identity), "progress": asdict(progress)}
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with written_beside(path) as beside:
        save_file(plain, beside, metadata={"run": json.dumps(header)})


def load_state(path: Path, identity: Mapping[str, Any]) -> tuple[Progress, dict[str, Tensor]]:
    """Read a state; it must be of the same data, network and recipe."""
    try:
        with safe_open(path, framework="pt") as file:
            header = json.loads((file.metadata() or {})["run"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, KeyError, json.JSONDecodeError) as error:
        raise RunError(f"{path} is no state of a run: {error}; remove it to start again") from None
    if header["format"] != FORMAT:
        raise RunError(f"{path} is of another version; remove it to start again")
    earlier = header["identity"]
    changed = sorted(
        name
        for name in {*earlier, *identity}
        if json.dumps(earlier.get(name), sort_keys=True)
        != json.dumps(identity.get(name), sort_keys=True)
    )
    if changed:
        raise RunError(
            f"{path} is of a run with another {', '.join(changed)}; resume with the options of "
            "that run, or remove it to start again"
        )
    return Progress(**header["progress"]), tensors
