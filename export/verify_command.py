"""`longdoc verify`: a bundle's certificates, measured again on this machine."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from models.bundle import load_bundle
from models.description import TOKENIZER


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("bundle", type=Path, metavar="BUNDLE", help="the bundle's folder")
    parser.add_argument(
        "--text",
        type=Path,
        metavar="FILE",
        help='held-out documents to measure on, one {"text": "…"} per line (default: built-in '
        "sentences, on which changed labels are not judged)",
    )
    parser.add_argument("--json", action="store_true", help="print the certificates as JSON")


def run(args: argparse.Namespace) -> int:
    """Check every digest, then every graph; 1 when one does not hold here."""
    bundle = load_bundle(args.bundle)
    from export.certificate import certify  # noqa: PLC0415 - loads torch
    from export.documents import read_documents  # noqa: PLC0415

    manifest = bundle.manifest
    documents = read_documents(args.text, bundle.file(TOKENIZER), manifest.max_tokens)
    all_hold = True
    certificates = []
    if not args.json:
        print(f"{manifest.name} {manifest.version}: {len(manifest.files)} files are intact")
    for precision, graph in manifest.graphs.items():
        if graph.file is None:
            if not args.json:
                print(f"{precision}: not in the bundle: {graph.reason}")
            continue
        found = certify(
            bundle.path, manifest, precision, documents, judge_labels=args.text is not None
        )
        certificates.append(found)
        all_hold = all_hold and found["valid"]
        if not args.json:
            verdict = "holds" if found["valid"] else "DOES NOT HOLD"
            largest = found["largest_difference"]["probability"]
            print(f"{precision}: {verdict}: {found['reason']}; probabilities within {largest:.1e}")
    if args.json:
        print(json.dumps(certificates, indent=1, ensure_ascii=False))
    return 0 if all_hold else 1
