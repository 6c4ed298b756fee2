"""From a checkpoint to a bundle: graphs, certificates, manifest."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import onnx

from export.candidate import Candidate, read_weights
from export.certificate import certify, file_names, refuse
from export.documents import COUNT, Documents, read_documents
from export.precision import to_int8, trace_fp16
from export.reference import write_reference
from export.trace import trace
from export.weights_file import share_weights
from models.bundle import (
    MANIFEST,
    REFERENCE,
    Bundle,
    Graph,
    Precision,
    load_bundle,
    seal_bundle,
    share_files,
)
from models.checkpoint import read_checkpoint
from models.description import CARD, TABLES, TOKENIZER, WEIGHTS
from models.encoders.checkpoint import NOTICES
from models.errors import ExportError
from models.files import read_file, staged_folder
from models.networks import Network, build_network
from models.tensors import Array
from models.tokenizer_file import load_tokenizer
from models.weights import load_weights, save_weights

_MAX_TOKENIZER = 64 << 20

PRECISIONS: tuple[Precision, ...] = ("fp32", "fp16", "int8")


def export(
    source: Path,
    target: Path,
    *,
    bundle_version: str,
    precisions: Sequence[Precision] = PRECISIONS,
    held_out: Path | None = None,
    count: int = COUNT,
    share: bool = False,
    report: Callable[[str], None],
) -> Bundle:
    """Write a checkpoint's bundle; it appears whole, and replaces only an earlier bundle.

    A precision that cannot be exported or certified is named in the manifest as not valid.
    """
    checkpoint = read_checkpoint(source)
    if getattr(checkpoint.config, "multi_label", False):
        raise ExportError(
            f"{source} gives several labels a document, which the service cannot tell yet"
        )
    model = build_network(checkpoint.config).eval()
    load_weights(model, source / WEIGHTS)
    tokenizer = load_tokenizer(
        read_file(source / TOKENIZER, _MAX_TOKENIZER), checkpoint.config.vocab_size, TOKENIZER
    )
    documents = read_documents(held_out, tokenizer, checkpoint.max_tokens, count)
    with staged_folder(target, marker=MANIFEST) as folder:
        notices = (name for name in NOTICES if (source / name).is_file())
        pictures = (picture.name for picture in source.glob("*.png"))
        for file in (TOKENIZER, CARD, *notices, *pictures):
            shutil.copyfile(source / file, folder / file)
        save_weights(model, folder / WEIGHTS, tables=folder / TABLES)
        # What is stored may be rounded: export that.
        load_weights(model, folder / WEIGHTS, folder / TABLES)
        tensors, digests = read_weights(folder)
        candidate = Candidate(checkpoint, tensors, {}, digests)
        write_reference(candidate, tokenizer, folder / REFERENCE)
        graphs = _write_graphs(folder, candidate, model, precisions, documents, report)
        seal_bundle(
            folder,
            checkpoint,
            version=bundle_version,
            provenance={"training": checkpoint.training, "longdoc": version("longdoc")},
            graphs=graphs,
        )
    if share:
        share_files(target)
    return load_bundle(target)


def _write_graphs(
    folder: Path,
    candidate: Candidate,
    model: Network,
    precisions: Sequence[Precision],
    documents: Documents,
    report: Callable[[str], None],
) -> dict[Precision, Graph]:
    graphs: dict[Precision, Graph] = {}
    traced = onnx.ModelProto()
    for precision in sorted({"fp32", *precisions}, key=PRECISIONS.index):
        name, certificate_name = file_names(precision)
        report(f"{precision}: export")
        try:
            if precision == "fp32":
                traced = trace(model)
            elif not graphs["fp32"].valid:
                raise ExportError("the fp32 graph is not valid")
            content = finish_graph(_in_precision(precision, traced, model), candidate.tensors)
            candidate = replace(candidate, graphs={**candidate.graphs, precision: content})
            report(f"{precision}: certify")
            certificate = certify(candidate, precision, documents)
        except ExportError as error:
            certificate = refuse(precision, str(error))
        valid, reason = certificate["valid"], certificate["reason"]
        if valid:
            (folder / name).write_bytes(content)
        write_certificate(certificate, folder / certificate_name)
        graphs[precision] = Graph(
            file=name if valid else None, certificate=certificate_name, valid=valid, reason=reason
        )
        report(f"{precision}: {'valid' if valid else 'not valid'}, {reason}")
    return graphs


def _in_precision(precision: Precision, traced: onnx.ModelProto, model: Network) -> onnx.ModelProto:
    if precision == "fp16":
        return trace_fp16(model)
    copy = onnx.ModelProto()
    copy.CopyFrom(traced)
    return to_int8(copy) if precision == "int8" else copy


def finish_graph(model: onnx.ModelProto, tensors: Mapping[str, Array]) -> bytes:
    """A traced graph as the bundle holds it: without the weights that are stored beside it."""
    share_weights(model, tensors)
    _strip(model)
    content: bytes = model.SerializeToString(deterministic=True)
    return content


def write_certificate(certificate: dict[str, Any], path: Path) -> None:
    text = json.dumps(certificate, indent=1, ensure_ascii=False, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")


def _strip(model: onnx.ModelProto) -> None:
    """Leave out what the tracer noted of source files and intermediate shapes."""
    graph = model.graph
    del graph.value_info[:]
    del graph.metadata_props[:]
    for value in (*graph.input, *graph.output, *graph.initializer):
        del value.metadata_props[:]
    for node in graph.node:
        del node.metadata_props[:]
        node.doc_string = ""
    del model.metadata_props[:]
