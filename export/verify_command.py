"""`longdoc verify`: a bundle's certificates, measured again here, or a running service."""

from __future__ import annotations

import argparse
import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from export.command import add_documents
from models.bundle import Bundle, Computed, Graph, Precision, load_bundle, write_manifest
from models.errors import EngineError
from models.extras import require
from models.terminal import printable
from service.commands import verify as verify_service

_COMPUTED = ("fp32", "bf16", "f16")


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
    add_documents(parser)
    parser.add_argument(
        "--engine",
        choices=("onnxruntime", "openvino"),
        default="onnxruntime",
        help="onnxruntime: measure every graph again (default); openvino: what it computes",
    )
    parser.add_argument(
        "--precision",
        nargs="+",
        choices=_COMPUTED,
        default=_COMPUTED,
        help="what OpenVINO is to compute in (default: each)",
    )
    parser.add_argument(
        "--add",
        action="store_true",
        help="put OpenVINO's certificates into the bundle, which changes its digest",
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
    from export.candidate import of_bundle  # noqa: PLC0415 - loads torch
    from export.documents import read_documents  # noqa: PLC0415

    manifest = bundle.manifest
    documents = read_documents(args.text, bundle.tokenizer(), manifest.max_tokens, args.documents)
    candidate = of_bundle(bundle)
    certificates = []
    if not args.json:
        print(f"{manifest.name} {manifest.version}: {len(manifest.files)} files are intact")
    for name in _asked_for(args, bundle):
        found = _measure(candidate, name, documents, judge_labels=args.text is not None)
        certificates.append(found)
        if not args.json:
            print(_line(name, found))
    if args.add:
        _add(bundle, certificates)
    if args.json:
        print(json.dumps(certificates, indent=1, ensure_ascii=False))
    return 0 if all(found["valid"] for found in certificates) else 1


def _asked_for(args: argparse.Namespace, bundle: Bundle) -> list[Precision | Computed]:
    graphs = bundle.manifest.graphs
    if args.engine == "openvino":
        if importlib.util.find_spec("openvino") is None:
            raise EngineError("OpenVINO is not installed: pip install 'longdoc[openvino]'")
        return [cast("Computed", f"openvino-{each}") for each in args.precision]
    if not args.json:
        for name, graph in graphs.items():
            if graph.file is None:
                print(f"{name}: not in the bundle: {printable(graph.reason)}")
    return [name for name, graph in graphs.items() if graph.file is not None]


def _measure(
    candidate: Any, name: Precision | Computed, documents: Any, *, judge_labels: bool
) -> dict[str, Any]:
    from export.certificate import certify, refuse  # noqa: PLC0415 - loads torch
    from models.errors import ExportError  # noqa: PLC0415

    try:
        return certify(candidate, name, documents, judge_labels=judge_labels)
    except ExportError as error:
        return refuse(name, str(error))


def _line(name: str, found: Mapping[str, Any]) -> str:
    verdict = "holds" if found["valid"] else "DOES NOT HOLD"
    line = f"{name}: {verdict}: {printable(found['reason'])}"
    if "largest_difference" in found:
        line += f"; probabilities within {found['largest_difference']['probability']:.1e}"
    return line


def _add(bundle: Bundle, certificates: list[dict[str, Any]]) -> None:
    """Put certificates of what OpenVINO computes into the bundle, and seal it again."""
    from export.exporter import write_certificate  # noqa: PLC0415 - loads torch
    from models.bundle import FileEntry  # noqa: PLC0415
    from models.files import sha256_of  # noqa: PLC0415

    manifest = bundle.manifest
    computed, files = dict(manifest.computed), dict(manifest.files)
    for found in certificates:
        name = found["precision"]
        if not name.startswith("openvino"):
            continue
        path = bundle.path / f"certificate.{name}.json"
        write_certificate(found, path)
        files[path.name] = FileEntry(sha256=sha256_of(path), bytes=path.stat().st_size)
        computed[name] = Graph(
            file=manifest.graphs["fp32"].file if found["valid"] else None,
            certificate=path.name,
            valid=found["valid"],
            reason=found["reason"],
        )
    write_manifest(bundle.path, manifest.model_copy(update={"computed": computed, "files": files}))
