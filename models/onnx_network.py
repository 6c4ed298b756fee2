"""A bundle's graph and its weights, in memory, in the types that the graph computes with.

What is stored in 16 bits is widened here, once: no run does it, and all sessions of a process
share one copy. Free of torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.bundle import MANIFEST, Bundle, Precision
from models.description import TOKENIZER
from models.encoders.config import NetworkConfig
from models.errors import BundleError
from models.onnx_graph import OnnxGraph, read_graph, with_weights
from models.tensors import Array

_OUTPUTS = ("logits", "states", "counts")


@dataclass(frozen=True)
class OnnxNetwork:
    """What an engine needs to open a session, or several.

    name      the graph's file, for messages
    weights   the values of the graph's external weights, by name
    head      the head's matrix, which turns a token's state into its contributions
    bias      what the head adds to each logit
    """

    name: str
    graph: OnnxGraph
    weights: Mapping[str, NDArray[np.floating[Any]]]
    head: NDArray[np.float32]  # (labels, width)
    bias: NDArray[np.float32]  # (labels,)
    config: NetworkConfig

    def contributions(
        self, states: NDArray[np.float32], counts: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """What each token adds to each label's logit, from states (batch, n, width) and counts."""
        shares = states @ self.head.T  # (batch, n, labels)
        shares /= counts[:, None, None]
        return shares

    def logits(
        self, states: NDArray[np.float32], counts: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """The head in float32, whatever the rest is computed in: (batch, labels)."""
        logits: NDArray[np.float32] = states.sum(axis=1) / counts[:, None] @ self.head.T
        return logits + self.bias

    def onnx(self) -> bytes:
        """The graph with all its weights, as one ONNX file that any runtime reads."""
        return with_weights(self.graph, self.weights, frozenset())


def write_plain(bundle: Bundle, folder: Path) -> None:
    """Write what any program needs to serve the bundle: manifest, tokenizer and one ONNX file."""
    for name, content in (
        (MANIFEST, bundle.manifest.model_dump_json(indent=2).encode()),
        (TOKENIZER, bundle.read(TOKENIZER)),
        ("model.onnx", read_network(bundle, "fp32").onnx()),
    ):
        (folder / name).write_bytes(content)


def read_network(bundle: Bundle, precision: Precision) -> OnnxNetwork:
    """Read and check one precision's graph and the weights it asks for."""
    about = bundle.manifest.graphs.get(precision)
    if about is None or about.file is None:
        raise BundleError(f"{bundle.path} has no {precision} graph")
    name = str(bundle.path / about.file)
    return make_network(bundle.read(about.file), bundle.tensors(), bundle.manifest.config, name)


def make_network(
    content: bytes, tensors: Mapping[str, Array], config: NetworkConfig, name: str
) -> OnnxNetwork:
    """An ONNX file's graph with the weights it asks for, as it declares them."""
    graph = read_graph(content, name)
    if graph.outputs != _OUTPUTS:
        raise BundleError(f"{name} computes {graph.outputs}; it must compute {_OUTPUTS}")
    weights = {}
    for tensor, (kind, shape) in graph.external.items():
        stored = tensors.get(tensor)
        if stored is None or stored.shape != shape:
            found = "not there" if stored is None else str(stored.shape)
            raise BundleError(f"{name} asks for the weight {tensor} {shape}; it is {found}")
        weights[tensor] = np.ascontiguousarray(stored, dtype=kind)
    head = np.ascontiguousarray(tensors["head.weight"], dtype=np.float32)
    bias = np.ascontiguousarray(tensors["head.bias"], dtype=np.float32)
    return OnnxNetwork(name, graph, weights, head, bias, config)
