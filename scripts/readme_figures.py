"""The table of figures in README.md, from the results and bundles that ship with the project.

python -m scripts.readme_figures           writes it
python -m scripts.readme_figures --check   ends with 1 when it is not in step
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from benchmarks.store import SHIPPED
from dashboard.accuracy import baseline_of
from dashboard.costs import lines
from dashboard.data import read_classifiers, read_results
from dashboard.series import title
from models.bundle import ROOT

README = Path(__file__).resolve().parents[1] / "README.md"
_ATTENTIONS = ("softmax", "nystromformer", "performer", "linear", "longformer")
_LENGTHS = (512, 4096, 16_384)
_PLACE = re.compile(r"(<!-- figures -->\n).*?(<!-- end of figures -->)", re.DOTALL)


def table() -> str:
    """Time and memory of one document read whole, by length, and accuracy; in Markdown."""
    results = read_results((SHIPPED,))
    run = results.measured_runs()[0]
    measured = lines(results.measurements[run.run])
    accuracy = {each.attention: each for each in read_classifiers(ROOT) if each.dataset == "elife"}
    heads = [f"{n:,} tokens" for n in _LENGTHS]
    rows = [
        f"| attention | {' | '.join(heads)} | peak memory at {_LENGTHS[-1]:,} | accuracy, eLife |",
        "|---|" + "---|" * (len(_LENGTHS) + 2),
    ]
    for attention in _ATTENTIONS:
        points = measured[attention, "onnxruntime", "fp32", 1]
        times = [f"{points[n].median * 1e3:,.0f} ms" for n in _LENGTHS]
        peak = points[_LENGTHS[-1]].peak_bytes
        memory = "–" if peak is None else f"{peak / 1e6:,.0f} MB"
        known = accuracy.get(attention)
        reached = "–" if known is None or known.accuracy is None else f"{known.accuracy:.3f}"
        if known is not None and known.max_tokens < _LENGTHS[-1]:
            reached += f" (windows of {known.max_tokens:,})"
        rows.append(f"| {title(attention)} | {' | '.join(times)} | {memory} | {reached} |")
    baseline = baseline_of(list(accuracy.values()))
    if baseline is not None:
        empty = " | ".join("" for _ in range(len(_LENGTHS) + 1))
        rows.append(f"| {baseline[0]} | {empty} | {baseline[1]:.3f} |")
    return "\n".join(
        [
            *rows,
            "",
            f"Medians of a document computed alone and read whole on one thread, ONNX Runtime in "
            f"fp32 ({run.title}, commit {(run.environment.commit or 'unknown')[:7]}).",
        ]
    )


def main() -> int:
    """Write the table, or check it."""
    text = README.read_text(encoding="utf-8")
    made = _PLACE.sub(lambda place: f"{place[1]}{table()}\n{place[2]}", text)
    if "--check" in sys.argv:
        return int(made != text)
    README.write_text(made, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
