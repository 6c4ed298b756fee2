"""`longdoc report`: the main figures as one HTML file."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.store import LOCAL, SHIPPED
from models.bundle import ROOT


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out", type=Path, default=Path("longdoc-report.html"), help="file [longdoc-report.html]"
    )
    parser.add_argument("--store", type=Path, default=LOCAL, help=f"results file [{LOCAL}]")
    parser.add_argument("--bundles", type=Path, default=ROOT, help="folder of bundles")


def run(args: argparse.Namespace) -> int:
    """Write the report; 1 when some results could not be read."""
    from dashboard.data import fidelity_rows, read_classifiers, read_results  # noqa: PLC0415
    from dashboard.report import make_report  # noqa: PLC0415

    results = read_results((SHIPPED, args.store))
    page = make_report(results, read_classifiers(args.bundles), fidelity_rows(results))
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(page, encoding="utf-8")
    for problem in results.problems:
        print(f"left out: {problem}")
    print(f"{args.out}: {len(page.encode()) / 1e6:.1f} MB")
    return 1 if results.problems else 0
