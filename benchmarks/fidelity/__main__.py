"""How well each approximation matches what it approximates, as its budget grows.

    python -m benchmarks.fidelity

stores the relative error of each seed. Two kinds of data: random (independent normal entries, the
worst case) and smooth (queries and keys that drift slowly through a few dimensions, as the states
of neighbouring tokens do).
"""

from __future__ import annotations

import argparse
import math
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from benchmarks.environment import begin_run, now
from benchmarks.fidelity.report import NAME, as_table, figures_of
from benchmarks.records import Figure
from benchmarks.store import LOCAL, Store
from models.attention import create_attention
from models.mechanisms import ATTENTIONS

HEADS, HEAD_DIM, SEEDS = 2, 32, 3
LENGTHS = (512, 2048, 8192)
BUDGETS = (16, 32, 64, 128, 256, 512)

#: What is measured, with parameters that put the formula itself to the test, without learned
#: additions. ∞-former is left out: its memory is read through weights that must be trained first.
APPROXIMATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "Linformer, random projection": ("linformer", {"sharing": "key-value"}),
    "Linformer, mean pooling": ("linformer", {"projection": "mean"}),
    "Nyströmformer": ("nystromformer", {"conv_kernel": 1}),
    "Performer": ("performer", {}),
    "Skyformer": ("skyformer", {}),
    "Longformer": ("longformer", {"global_tokens": 0}),
}


def make_documents(data: str, n: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """q, k, v (1, heads, n, d) of that kind of data."""
    generator = torch.Generator().manual_seed(seed)
    shape = (3, 1, HEADS, n, HEAD_DIM)
    if data == "random":
        q, k, v = torch.randn(shape, generator=generator)
        return q, k, v
    # Smooth and of low rank: eight slow waves per head, mixed into all dimensions.
    waves = 8
    t = torch.linspace(0, 1, n)[:, None]
    rates = torch.arange(1, waves + 1) * math.pi
    phases = torch.rand((3, 1, HEADS, 1, waves), generator=generator) * 2 * math.pi
    mix = torch.randn((3, 1, HEADS, waves, HEAD_DIM), generator=generator) / math.sqrt(waves)
    q, k, v = math.sqrt(2) * (t * rates + phases).sin() @ mix
    return q, k, v


@torch.no_grad()
def measure(run: str, data: str, n: int) -> Iterator[Figure]:
    """The errors of all approximations and budgets on one kind of data and length."""
    mask = torch.ones(1, n, dtype=torch.bool)
    documents = [make_documents(data, n, seed) for seed in range(SEEDS)]
    exact: dict[str, list[Tensor]] = {}
    for title, (name, plain) in APPROXIMATIONS.items():
        target, budget_name = ATTENTIONS[name].approximates, ATTENTIONS[name].budget
        if target is None or budget_name is None:
            raise ValueError(f"{name} declares nothing that it approximates, or no budget")
        if target not in exact:
            reference = create_attention(target, heads=HEADS, head_dim=HEAD_DIM)
            exact[target] = [reference(q, k, v, mask) for q, k, v in documents]
        for budget in (b for b in BUDGETS if b <= n):
            errors = []
            for seed, (q, k, v) in enumerate(documents):
                params: dict[str, Any] = {**plain, budget_name: budget}
                if name == "linformer":
                    params["max_length"] = n
                if name == "performer":
                    params["seed"] = seed
                torch.manual_seed(seed)
                attention = create_attention(name, heads=HEADS, head_dim=HEAD_DIM, **params)
                wanted = exact[target][seed]
                error = (attention(q, k, v, mask) - wanted).norm() / wanted.norm()
                errors.append(float(error))
            conditions = {
                "attention": name,
                "approximates": target,
                "data": data,
                "n": n,
                "budget_name": budget_name,
                "budget": budget,
            }
            yield Figure(
                run=run, created=now(), name=NAME, subject=title, unit="relative error",
                values=tuple(errors), conditions=conditions,
            )  # fmt: skip


def main() -> int:
    """Measure, store, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fidelity", description=__doc__)
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS, metavar="N")
    parser.add_argument("--store", type=Path, default=LOCAL, help=f"results file [{LOCAL}]")
    args = parser.parse_args()
    store = Store(args.store)
    run = begin_run(
        "fidelity",
        f"lengths {args.lengths}",
        shlex.join(["python", "-m", "benchmarks.fidelity", *sys.argv[1:]]),
        versions={"torch": torch.__version__},
    )
    store.append(run)
    cells = [(data, n) for data in ("random", "smooth") for n in args.lengths]
    for data, n in tqdm(cells, desc="fidelity", unit="panel"):
        for figure in measure(run.run, data, n):
            store.append(figure)
    store.append(run.model_copy(update={"finished": now()}))
    print(as_table(figures_of(store)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
