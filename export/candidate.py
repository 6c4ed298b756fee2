"""The parts of a bundle that are measured, before it is sealed or after."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import cast

from models.bundle import Bundle, Computed, Precision
from models.description import TABLES, WEIGHTS, Description
from models.files import open_file, read_file
from models.onnx_network import make_network
from models.tensors import Array, read_layout, read_tensors
from service.engines.base import Engine
from service.engines.ort import OnnxRuntimeEngine
from service.engines.pytorch import TorchEngine

_MAX_BYTES = 2 << 30


@dataclass(frozen=True)
class Candidate:
    """A network, its weights, its graphs, and the digests that a certificate names."""

    network: Description
    tensors: Mapping[str, Array]
    graphs: Mapping[Precision, bytes]
    digests: Mapping[str, str]

    def open(self, precision: Precision | Computed) -> Engine:
        """A graph in the engine that serves it, on a CPU, with one thread."""
        network = make_network(
            self.graphs[graph_of(precision)],
            self.tensors,
            self.network.config,
            f"the {precision} graph",
        )
        if precision.startswith("openvino"):
            from service.engines.openvino import OpenVinoEngine  # noqa: PLC0415 - an extra

            computed = precision.removeprefix("openvino-")
            return OpenVinoEngine(network, precision=computed, threads=1, reason="to be certified")
        return OnnxRuntimeEngine(
            network, device="cpu", precision=precision, threads=1, reason="to be certified"
        )

    @cached_property
    def reference(self) -> Engine:
        """The network in PyTorch, in float32."""
        return TorchEngine(
            self.tensors, self.network.config, device="cpu", threads=1, reason="reference"
        )

    def graph_digest(self, precision: Precision | Computed) -> str:
        """The SHA-256 of a graph."""
        return hashlib.sha256(self.graphs[graph_of(precision)]).hexdigest()


def graph_of(precision: Precision | Computed) -> Precision:
    """Which graph is run: OpenVINO computes the fp32 one in whatever precision."""
    return "fp32" if precision.startswith("openvino") else cast("Precision", precision)


def of_bundle(bundle: Bundle) -> Candidate:
    """What a bundle holds."""
    graphs = {
        precision: bundle.read(graph.file)
        for precision, graph in bundle.manifest.graphs.items()
        if graph.file is not None
    }
    digests = {name: bundle.manifest.files[name].sha256 for name in (WEIGHTS, TABLES)}
    return Candidate(bundle.manifest, bundle.tensors(), graphs, digests)


def read_weights(folder: Path) -> tuple[dict[str, Array], dict[str, str]]:
    """The weights that lie in a folder, and the digests of their files."""
    tensors: dict[str, Array] = {}
    digests = {}
    for name in (TABLES, WEIGHTS):
        path = folder / name
        with open_file(path, _MAX_BYTES) as (file, size):
            layout = read_layout(file, size, name)
        content = read_file(path, _MAX_BYTES)
        tensors |= read_tensors(content, layout, name)
        digests[name] = hashlib.sha256(content).hexdigest()
    return tensors, digests
