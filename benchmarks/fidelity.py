"""How well each approximation matches what it approximates, as its budget grows.

    python -m benchmarks.fidelity

prints a table, and writes the figures as JSON, the table as Markdown and the plot as SVG to
docs/. Two kinds of data: random (independent normal entries, the worst case) and smooth
(queries and keys that drift slowly through a few dimensions, as the states of neighbouring
tokens do).
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from models.attention import create_attention
from models.mechanisms import ATTENTIONS

HEADS, HEAD_DIM, SEEDS = 2, 32, 3
LENGTHS = (512, 2048, 8192)
BUDGETS = (16, 32, 64, 128, 256, 512)
SHOWN_AS_EXACT = 1e-3  # smaller errors are drawn here, so that the others can be read
DOCS = Path(__file__).resolve().parent.parent / "docs"

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


@dataclass(frozen=True)
class Fidelity:
    """Relative error of one approximation: ‖approximation − exact‖ / ‖exact‖, per seed."""

    approximation: str
    approximates: str
    data: str
    n: int
    budget_name: str
    budget: int
    errors: tuple[float, ...]

    @property
    def error(self) -> float:
        """Mean over the seeds."""
        return sum(self.errors) / len(self.errors)


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
def measure(data: str, n: int) -> Iterator[Fidelity]:
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
            yield Fidelity(title, target, data, n, budget_name, budget, tuple(errors))


def as_table(results: Iterable[Fidelity]) -> str:
    """A Markdown table per kind of data and length: a row per approximation."""
    results = list(results)
    lines = []
    for data in dict.fromkeys(r.data for r in results):
        for n in dict.fromkeys(r.n for r in results):
            part = [r for r in results if (r.data, r.n) == (data, n)]
            budgets = sorted({r.budget for r in part})
            lines += [
                f"\n**{data.capitalize()} data, n = {n}**\n",
                "| approximation | of | budget | " + " | ".join(map(str, budgets)) + " |",
                "|---|---|---|" + "---|" * len(budgets),
            ]
            for title in dict.fromkeys(r.approximation for r in part):
                row = {r.budget: r for r in part if r.approximation == title}
                first = next(iter(row.values()))
                cells = (f"{row[b].error:.2f}" if b in row else "" for b in budgets)
                lines.append(
                    f"| {title} | {first.approximates} | {first.budget_name} | "
                    + " | ".join(cells)
                    + " |"
                )
    return "\n".join(lines) + "\n"


def draw(results: Iterable[Fidelity], path: Path) -> None:
    """Error against budget, a panel per kind of data and length."""
    import matplotlib as mpl  # noqa: PLC0415 - heavy, and needed for the picture only

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "longdoc"
    from matplotlib import pyplot as plt  # noqa: PLC0415

    results = list(results)
    kinds = list(dict.fromkeys(r.data for r in results))
    lengths = list(dict.fromkeys(r.n for r in results))
    titles = list(dict.fromkeys(r.approximation for r in results))
    colours = dict(zip(titles, plt.get_cmap("tab10").colors, strict=False))  # type: ignore[attr-defined]
    figure, axes = plt.subplots(
        len(kinds), len(lengths), figsize=(11, 6.4), sharex=True, sharey="row", squeeze=False
    )
    for row, data in enumerate(kinds):
        for column, n in enumerate(lengths):
            axis = axes[row][column]
            for title in titles:
                line = [r for r in results if (r.approximation, r.data, r.n) == (title, data, n)]
                axis.plot(
                    [r.budget for r in line],
                    [max(r.error, SHOWN_AS_EXACT) for r in line],
                    marker="o",
                    markersize=4,
                    color=colours[title],
                    label=title,
                )
            axis.set_xscale("log", base=2)
            axis.set_yscale("log")
            axis.set_title(f"{data} data, n = {n}", fontsize=10)
            axis.grid(alpha=0.3)
            if column == 0:
                axis.set_ylabel("relative error")
            if row == len(kinds) - 1:
                axis.set_xlabel("budget (landmarks, k, features, window)")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="upper center", ncols=3, frameon=False)
    figure.tight_layout(rect=(0, 0, 1, 0.91))
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS, metavar="N")
    parser.add_argument("--out", type=Path, default=DOCS, help="folder to write to (default: docs)")
    args = parser.parse_args()
    results: list[Fidelity] = []
    cells = [(data, n) for data in ("random", "smooth") for n in args.lengths]
    for data, n in tqdm(cells, desc="fidelity", unit="panel"):
        results += measure(data, n)
    table = as_table(results)
    print(table)
    (args.out / "images").mkdir(parents=True, exist_ok=True)
    (args.out / "fidelity.json").write_text(
        json.dumps([asdict(r) for r in results], indent=1) + "\n", encoding="utf-8"
    )
    page = args.out / "fidelity.md"
    begin, end = "<!-- table -->", "<!-- end of table -->"
    text = page.read_text(encoding="utf-8") if page.exists() else f"{begin}\n{end}\n"
    head, _, rest = text.partition(begin)
    page.write_text(f"{head}{begin}\n{table}\n{end}{rest.partition(end)[2]}", encoding="utf-8")
    draw(results, args.out / "images" / "fidelity.svg")


if __name__ == "__main__":
    main()
