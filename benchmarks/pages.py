"""`python -m benchmarks.pages`: write the pages of measured figures in docs/ from the store."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.fidelity.report import draw, figures_of
from benchmarks.fidelity.report import page_of as fidelity_page
from benchmarks.peers.report import page_of as peers_page
from benchmarks.service.report import page_of as service_page
from benchmarks.store import SHIPPED, Store
from models.errors import LongdocError

DOCS = Path(__file__).resolve().parent.parent / "docs"

#: Each page's file, and what makes it from a store.
PAGES: Mapping[str, Callable[[Store], str]] = {
    "peers.md": peers_page,
    "serving-figures.md": service_page,
    "fidelity.md": fidelity_page,
}


def main() -> int:
    """Write the pages named, or all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pages", description=__doc__)
    parser.add_argument("pages", nargs="*", metavar="PAGE", help=f"some of {', '.join(PAGES)}")
    parser.add_argument("--store", type=Path, default=SHIPPED, help="results file [the shipped]")
    parser.add_argument("--out", type=Path, default=DOCS, help="folder to write to [docs]")
    args = parser.parse_args()
    store = Store(args.store, read_only=args.store == SHIPPED)
    try:
        for name in args.pages or PAGES:
            (args.out / name).write_text(PAGES[name](store), encoding="utf-8")
            if name == "fidelity.md":
                (args.out / "images").mkdir(exist_ok=True)
                draw(figures_of(store), args.out / "images" / "fidelity.svg")
    except LongdocError as error:
        print(f"pages: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
