"""What is measured of a graph, and what follows: whether it may serve."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import onnx

from export.agreement import Agreement, compare, label_changes, speed_ratios
from export.documents import Documents
from export.trace import check_symbolic
from models.bundle import Precision
from models.description import WEIGHTS, Description
from models.errors import ExportError
from models.files import sha256_of
from service.engines.base import Engine
from service.engines.ort import FAULTS, OnnxRuntimeEngine
from service.engines.pytorch import TorchEngine

FORMAT = 1
#: Largest difference of a probability from PyTorch that a graph may show.
PROBABILITY_BOUND: Mapping[Precision, float] = {"fp32": 1e-4, "fp16": 1e-2, "int8": 0.25}
#: Largest difference of a probability between a document alone and in a batch; int8 rounds
#: activations by the batch's largest, so the service runs it without batches.
INVARIANCE_BOUND: Mapping[Precision, float] = {"fp32": 1e-4, "fp16": 1e-2, "int8": 1.0}
#: Share of the held-out documents whose label may change.
LABEL_CHANGES_BOUND = 0.005
#: How many times faster than fp32 int8 must be to be offered.
WORTH_IT = 1.05

_PACKAGES = ("longdoc", "numpy", "onnx", "onnxruntime", "onnxscript", "tokenizers", "torch")


def file_names(precision: Precision) -> tuple[str, str]:
    """A precision's graph and certificate in a bundle."""
    graph = "model.onnx" if precision == "fp32" else f"model.{precision}.onnx"
    return graph, f"certificate.{precision}.json"


def certify(
    folder: Path,
    network: Description,
    precision: Precision,
    documents: Documents,
    *,
    judge_labels: bool = True,
) -> dict[str, Any]:
    """Measure a folder's graph against PyTorch with the folder's weights, and judge it.

    Without `judge_labels`, changed labels are counted but not held against it: on documents that
    the classifier was not made for, labels hang in the balance.
    """
    graph, _ = file_names(precision)
    config = network.config
    inputs = check_symbolic(onnx.load(folder / graph, load_external_data=False))
    reference = TorchEngine(folder / WEIGHTS, config, device="cpu", threads=1, reason="reference")
    candidate = _open(folder, network, precision)
    try:
        agreement = compare(
            reference,
            candidate,
            config,
            documents,
            network.max_tokens,
            every_case=precision == "fp32",
        )
    except FAULTS as error:
        raise ExportError(f"ONNX Runtime cannot run the graph: {error}") from None
    certificate = {
        **_header(precision),
        "graph": graph,
        "graph_sha256": sha256_of(folder / graph),
        "weights_sha256": sha256_of(folder / WEIGHTS),
        "dimensions": inputs,
        "documents": {"source": documents.source, "count": len(documents.ids)},
        **_agreement(agreement),
        **_against_fp32(folder, network, precision, documents, reference, candidate),
    }
    faults = find_faults(certificate, judge_labels=judge_labels)
    reason = "; ".join(faults) or "within all bounds"
    return {**certificate, "valid": not faults, "reason": reason}


def refuse(precision: Precision, reason: str) -> dict[str, Any]:
    """The certificate of a graph that could not be made."""
    return {**_header(precision), "graph": None, "valid": False, "reason": reason}


def find_faults(certificate: Mapping[str, Any], *, judge_labels: bool = True) -> list[str]:
    """What a certificate's figures say against serving the graph; nothing when all is well."""
    precision: Precision = certificate["precision"]
    largest = certificate["largest_difference"]["probability"]
    faults = []
    if largest > PROBABILITY_BOUND[precision]:
        faults.append(
            f"probabilities differ from PyTorch's by {largest:.2g}, "
            f"more than {PROBABILITY_BOUND[precision]:g}"
        )
    invariance = certificate["batch_invariance"]["onnxruntime"]
    if invariance > INVARIANCE_BOUND[precision]:
        faults.append(f"answers alone and in a batch differ by {invariance:.2g}")
    changes = certificate["held_out"]["label_changes"]
    if judge_labels and changes >= LABEL_CHANGES_BOUND:
        faults.append(f"{changes:.1%} of the labels change")
    if precision == "int8" and certificate["speed_ratio"]["smallest"] < WORTH_IT:
        faults.append(f"only {certificate['speed_ratio']['smallest']:.2f} times as fast as fp32")
    return faults


def _header(precision: Precision) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "precision": precision,
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {"python": platform.python_version()}
        | {name: version(name) for name in _PACKAGES},
        "machine": f"{platform.system()} {platform.machine()}",
    }


def _agreement(found: Agreement) -> dict[str, Any]:
    return {
        "largest_difference": {
            "probability": found.probability,
            "logit": found.logit,
            "contribution": found.contribution,
        },
        "batch_invariance": {
            "onnxruntime": found.batch_invariance,
            "torch": found.reference_batch_invariance,
        },
        "cases": found.cases,
        "left_out": found.left_out,
    }


def _against_fp32(
    folder: Path,
    network: Description,
    precision: Precision,
    documents: Documents,
    reference: Engine,
    candidate: Engine,
) -> dict[str, Any]:
    """Labels and speed: of fp32 against PyTorch, of the others against fp32."""
    baseline = reference if precision == "fp32" else _open(folder, network, "fp32")
    changes, largest = label_changes(baseline, candidate, documents)
    ratios = speed_ratios(baseline, candidate, network.config, network.max_tokens)
    return {
        "compared_with": "torch" if precision == "fp32" else "fp32",
        "held_out": {"label_changes": changes, "probability": largest},
        "speed_ratio": {"by_length": ratios, "smallest": min(ratios.values())},
    }


def _open(folder: Path, network: Description, precision: Precision) -> Engine:
    graph, _ = file_names(precision)
    return OnnxRuntimeEngine(
        folder / graph,
        network.config,
        device="cpu",
        precision=precision,
        threads=1,
        reason="to be certified",
    )
