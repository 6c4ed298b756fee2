"""What is measured of a graph, and what follows: whether it may serve."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import onnx

from export.agreement import Agreement, compare, label_changes, speed_ratios
from export.candidate import Candidate, graph_of
from export.documents import Documents
from export.trace import check_symbolic
from models.bundle import Computed, Precision
from models.errors import BundleError, EngineError, ExportError
from service.engines.base import Engine
from service.engines.ort import FAULTS

FORMAT = 2
#: Largest difference of a probability from PyTorch that a graph may show.
PROBABILITY_BOUND: Mapping[str, float] = {
    "fp32": 1e-4,
    "fp16": 1e-2,
    "int8": 0.25,
    "openvino-fp32": 1e-4,
    "openvino-bf16": 0.02,
    "openvino-f16": 0.02,
}
#: Largest difference of a probability between a document alone and in a batch; int8 rounds
#: activations by the batch's largest, so the service runs it without batches.
INVARIANCE_BOUND: Mapping[str, float] = {
    "fp32": 1e-4,
    "fp16": 1e-2,
    "int8": 1.0,
    "openvino-fp32": 1e-4,
    "openvino-bf16": 0.005,
    "openvino-f16": 0.005,
}
#: Share of the held-out documents whose label may change.
LABEL_CHANGES_BOUND = 0.005
#: The same for what OpenVINO computes.
COMPUTED_LABEL_CHANGES_BOUND = 0.002
#: How many times faster than fp32 int8 must be to be offered.
WORTH_IT = 1.05

_PACKAGES = ("longdoc", "numpy", "onnx", "onnxruntime", "onnxscript", "tokenizers", "torch")


def file_names(precision: Precision | Computed) -> tuple[str, str]:
    """A precision's graph and certificate in a bundle."""
    plain = graph_of(precision) == "fp32"
    graph = "model.onnx" if plain else f"model.{precision}.onnx"
    return graph, f"certificate.{precision}.json"


def certify(
    candidate: Candidate,
    precision: Precision | Computed,
    documents: Documents,
    *,
    judge_labels: bool = True,
) -> dict[str, Any]:
    """Measure a graph against PyTorch with the same weights, and judge it.

    Without `judge_labels`, changed labels are counted but not held against it: on documents that
    the classifier was not made for, labels hang in the balance.
    """
    graph, _ = file_names(precision)
    network = candidate.network
    content = candidate.graphs[graph_of(precision)]
    inputs = check_symbolic(onnx.load_model_from_string(content))
    try:
        engine = candidate.open(precision)
        agreement = compare(
            candidate.reference,
            engine,
            network.config,
            documents,
            network.max_tokens,
            every_case=precision == "fp32",
        )
    except (*FAULTS, BundleError, EngineError) as error:
        raise ExportError(f"the engine cannot run the graph: {error}") from None
    certificate = {
        **_header(precision),
        "graph": graph,
        "graph_sha256": candidate.graph_digest(precision),
        "weights_sha256": dict(candidate.digests),
        "dimensions": inputs,
        "documents": {"source": documents.source, "count": len(documents.ids)},
        **_agreement(agreement, engine.info.engine),
        **_against_fp32(candidate, precision, documents, engine),
    }
    faults = find_faults(certificate, judge_labels=judge_labels)
    reason = "; ".join(faults) or "within all bounds"
    return {**certificate, "valid": not faults, "reason": reason}


def refuse(precision: Precision | Computed, reason: str) -> dict[str, Any]:
    """The certificate of a graph that could not be made."""
    return {**_header(precision), "graph": None, "valid": False, "reason": reason}


def find_faults(certificate: Mapping[str, Any], *, judge_labels: bool = True) -> list[str]:
    """What a certificate's figures say against serving the graph; nothing when all is well."""
    precision: Precision | Computed = certificate["precision"]
    largest = certificate["largest_difference"]["probability"]
    faults = []
    if not largest <= PROBABILITY_BOUND[precision]:  # no number is no agreement
        faults.append(
            f"probabilities differ from PyTorch's by {largest:.2g}, "
            f"more than {PROBABILITY_BOUND[precision]:g}"
        )
    invariance = max(
        value for name, value in certificate["batch_invariance"].items() if name != "torch"
    )
    if not invariance <= INVARIANCE_BOUND[precision]:
        faults.append(f"answers alone and in a batch differ by {invariance:.2g}")
    changes = certificate["held_out"]["label_changes"]
    computed = precision.startswith("openvino")
    allowed = COMPUTED_LABEL_CHANGES_BOUND if computed else LABEL_CHANGES_BOUND
    if judge_labels and not changes < allowed:
        faults.append(f"{changes:.1%} of the labels change")
    if precision == "int8" and certificate["speed_ratio"]["smallest"] < WORTH_IT:
        faults.append(f"only {certificate['speed_ratio']['smallest']:.2f} times as fast as fp32")
    return faults


def _header(precision: Precision | Computed) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "precision": precision,
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {"python": platform.python_version()}
        | {name: version(name) for name in _PACKAGES},
        "machine": f"{platform.system()} {platform.machine()}",
    }


def _agreement(found: Agreement, engine: str) -> dict[str, Any]:
    return {
        "largest_difference": {
            "probability": found.probability,
            "logit": found.logit,
            "contribution": found.contribution,
        },
        "batch_invariance": {
            engine: found.batch_invariance,
            "torch": found.reference_batch_invariance,
        },
        "cases": found.cases,
        "left_out": found.left_out,
    }


def _against_fp32(
    candidate: Candidate, precision: Precision | Computed, documents: Documents, engine: Engine
) -> dict[str, Any]:
    """Labels and speed: of fp32 against PyTorch, of the others against fp32."""
    network = candidate.network
    baseline = candidate.reference if precision == "fp32" else candidate.open("fp32")
    changes, largest = label_changes(baseline, engine, documents)
    ratios = speed_ratios(baseline, engine, network.config, network.max_tokens)
    return {
        "compared_with": "torch" if precision == "fp32" else "fp32",
        "held_out": {"label_changes": changes, "probability": largest},
        "speed_ratio": {"by_length": ratios, "smallest": min(ratios.values())},
    }
