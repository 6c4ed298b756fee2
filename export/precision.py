"""Other precisions of a traced graph: fp16 for GPUs, int8 weights for CPUs."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic
from torch import Tensor, nn

from export.trace import inputs_of, quiet, rename_weights, trace
from models.networks import Network, build_network


class _HalfBlock(nn.Module):
    """A block that computes in 16 bits between inputs and outputs of 32."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block.half()

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        out: Tensor = self.block(x.half(), mask)
        return out.float()


def trace_fp16(model: Network) -> onnx.ModelProto:
    """Export with blocks that compute in 16 bits; positions, pooling and head stay in 32.

    Positions beyond 2048 and sums over a document do not fit 16 bits. A mechanism that is not
    safe in 16 bits widens its own inputs.
    """
    half = build_network(model.config)
    half.load_state_dict(model.state_dict())
    half.blocks = nn.ModuleList(_HalfBlock(block) for block in half.blocks)
    traced = trace(half)
    rename_weights(traced, lambda name: re.sub(r"^(blocks\.\d+)\.block\.", r"\1.", name))
    return traced


def to_int8(traced: onnx.ModelProto) -> onnx.ModelProto:
    """Store the weights of matrix products in 8 bits; activations are rounded as they come."""
    _fold_transposes(traced)
    with tempfile.TemporaryDirectory() as folder, quiet():
        before, after = Path(folder) / "fp32.onnx", Path(folder) / "int8.onnx"
        before.write_bytes(traced.SerializeToString())
        quantize_dynamic(
            before,
            after,
            op_types_to_quantize=["MatMul"],
            per_channel=True,
            weight_type=QuantType.QInt8,
            nodes_to_exclude=_products_with_vectors(traced),
            extra_options={"MatMulConstBOnly": True},
        )
        quantised: onnx.ModelProto = onnx.load(after)
        return quantised


def _products_with_vectors(model: onnx.ModelProto) -> list[str]:
    """Products with a constant that is no matrix: ONNX Runtime's 8-bit kernel refuses them."""
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    return [
        node.name
        for node in model.graph.node
        if node.op_type == "MatMul"
        and node.input[1] in weights
        and len(weights[node.input[1]].dims) != 2
    ]


def _fold_transposes(model: onnx.ModelProto) -> None:
    """Turn the transposed weight of a product into a weight, which is what gets quantised."""
    graph = model.graph
    weights = {tensor.name: tensor for tensor in graph.initializer}
    kept = []
    for node in graph.node:
        if node.op_type == "Transpose" and node.input[0] in weights:
            order = list(node.attribute[0].ints)
            values = numpy_helper.to_array(weights[node.input[0]]).transpose(order)
            graph.initializer.append(
                numpy_helper.from_array(np.ascontiguousarray(values), node.output[0])
            )
        else:
            kept.append(onnx.NodeProto.FromString(node.SerializeToString()))
    del graph.node[:]
    graph.node.extend(kept)
    used = {name for node in graph.node for name in inputs_of(node)}
    left = [tensor for tensor in graph.initializer if tensor.name in used]
    copies = [onnx.TensorProto.FromString(tensor.SerializeToString()) for tensor in left]
    del graph.initializer[:]
    graph.initializer.extend(copies)
