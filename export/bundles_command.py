"""`longdoc bundles`: the bundles there are. Free of torch."""

from __future__ import annotations

import argparse
from pathlib import Path

from models.bundle import ROOT, Bundle, find_bundles, load_bundle
from models.errors import BundleError
from models.terminal import printable

_COLUMNS = ("NAME", "ATTENTION", "LABELS", "TOKENS", "ACCURACY", "GRAPHS", "MB")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--root", type=Path, default=ROOT, help="folder to look in (default: the bundled ones)"
    )


def run(args: argparse.Namespace) -> int:
    """List them; 1 when one is damaged."""
    rows: list[tuple[str, ...]] = [_COLUMNS]
    damaged = []
    for path in find_bundles(args.root):
        try:
            rows.append(_row(load_bundle(path)))
        except BundleError as error:
            damaged.append(f"{printable(path.name)}: {error}")
    if len(rows) == 1 and not damaged:
        print(f"there are no bundles in {args.root}")
        return 0
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print(line.rstrip())
    for line in damaged:
        print(line)
    return 1 if damaged else 0


def _row(bundle: Bundle) -> tuple[str, ...]:
    manifest = bundle.manifest
    accuracy = manifest.evaluation.get("accuracy")
    valid = [name for name, graph in manifest.graphs.items() if graph.valid]
    size = sum(entry.bytes for entry in manifest.files.values())
    return (
        manifest.name,
        manifest.config.attention,
        str(len(manifest.labels)),
        str(manifest.max_tokens),
        f"{accuracy:.3f}" if isinstance(accuracy, float) else "-",
        " ".join(valid) or "torch only",
        f"{size / 1e6:.1f}",
    )
