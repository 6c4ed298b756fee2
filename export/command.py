"""`longdoc export`: checkpoints to bundles."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from models.bundle import Bundle
from models.errors import ConfigError

PRECISIONS = ("fp32", "fp16", "int8")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "checkpoints", nargs="+", type=Path, metavar="CHECKPOINT", help="folder that training wrote"
    )
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("--out", type=Path, metavar="BUNDLE", help="the bundle's folder")
    target.add_argument(
        "--into", type=Path, metavar="FOLDER", help="where bundles are put, each under its name"
    )
    parser.add_argument(
        "--text",
        type=Path,
        metavar="FILE",
        help='held-out documents to certify on, one {"text": "…"} per line; they are not stored',
    )
    add_documents(parser)
    parser.add_argument(
        "--share",
        action="store_true",
        help="keep the tokenizer and the tables of vectors in a folder `shared` beside the bundle, "
        "once for all bundles that hold the same",
    )
    parser.add_argument(
        "--precision",
        nargs="+",
        choices=PRECISIONS,
        default=PRECISIONS,
        help="what to export in addition to fp32 (default: all)",
    )
    parser.add_argument(
        "--bundle-version", default="1", metavar="VERSION", help="the bundle's own version"
    )


def run(args: argparse.Namespace) -> int:
    """Export every checkpoint; 1 when one came out without a valid fp32 graph."""
    if args.out is not None and len(args.checkpoints) > 1:
        raise ConfigError("--out takes one checkpoint; use --into FOLDER for several")
    from export.exporter import export  # noqa: PLC0415 - loads torch
    from models.checkpoint import read_checkpoint  # noqa: PLC0415

    all_valid = True
    for source in args.checkpoints:
        name = read_checkpoint(source).name
        started = time.monotonic()
        bundle = export(
            source,
            args.out or args.into / name,
            bundle_version=args.bundle_version,
            precisions=args.precision,
            held_out=args.text,
            count=args.documents,
            share=args.share,
            report=lambda line, name=name: print(f"{name}: {line}", file=sys.stderr),  # type: ignore[misc]
        )
        print(summary(bundle, time.monotonic() - started))
        all_valid = all_valid and bundle.manifest.graphs["fp32"].valid
    return 0 if all_valid else 1


def add_documents(parser: argparse.ArgumentParser) -> None:
    """Declare how many documents are measured on."""
    parser.add_argument(
        "--documents",
        type=int,
        default=400,
        metavar="N",
        help="documents to measure on at most (default: 400)",
    )


def summary(bundle: Bundle, seconds: float) -> str:
    size = sum(entry.bytes for entry in bundle.manifest.files.values())
    valid = [name for name, graph in bundle.manifest.graphs.items() if graph.valid]
    return (
        f"{bundle.path}: {size / 1e6:.1f} MB, valid: {', '.join(valid) or 'none'}, "
        f"digest {bundle.digest[:12]}, {seconds:.0f} s"
    )
