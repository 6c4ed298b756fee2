"""`longdoc verify`: a bundle's certificates, measured again here, or a running service."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from models.bundle import load_bundle
from models.description import TOKENIZER
from models.extras import require
from service.commands import verify as verify_service


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "target", metavar="BUNDLE|URL", help="a bundle's folder, or the address of a service"
    )
    parser.add_argument(
        "--text",
        type=Path,
        metavar="FILE",
        help='held-out documents to measure on, one {"text": "…"} per line (default: built-in '
        "sentences, on which changed labels are not judged)",
    )
    parser.add_argument("--json", action="store_true", help="print the certificates as JSON")
    verify_service.configure(parser.add_argument_group("options for a service"))


def run(args: argparse.Namespace) -> int:
    """Check a service, or every digest and graph of a bundle; 1 when something does not hold."""
    if args.target.startswith(("http://", "https://")):
        return verify_service.run(args.target, args)
    require("torch", "longdoc verify BUNDLE")
    return _verify_bundle(args)


def _verify_bundle(args: argparse.Namespace) -> int:
    bundle = load_bundle(Path(args.target))
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
