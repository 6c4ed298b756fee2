"""No node of a shipped graph has to leave the GPU in the middle of a run."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, shape_inference

from models.bundle import Precision, find_bundles, load_bundle
from models.onnx_network import read_network
from tests.export.cuda_kernels import CUDA_KERNELS

_TRUTH = frozenset({"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"})


def nodes_without_kernel(model: onnx.ModelProto) -> list[str]:
    """The nodes that the CUDA provider would hand to the CPU, each with its type."""
    graph = shape_inference.infer_shapes(model).graph
    types = {value.name: value.type.tensor_type.elem_type
             for value in (*graph.input, *graph.value_info, *graph.output)}  # fmt: skip
    types |= {weight.name: weight.data_type for weight in graph.initializer}
    missing = []
    for node in graph.node:
        deciding = node.input[0] if node.op_type in _TRUTH else node.output[0]
        kind = TensorProto.DataType.Name(types.get(deciding, 0)).lower()
        if node.op_type in ("Constant", "Identity"):
            continue
        known = CUDA_KERNELS.get(node.op_type, frozenset())
        if kind not in known and not (kind == "undefined" and known):
            missing.append(f"{node.op_type} of {kind} ({node.name})")
    return missing


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("path", find_bundles(), ids=lambda path: path.name)
def test_every_node_has_a_kernel(path: Path, precision: Precision) -> None:
    model = onnx.load_model_from_string(read_network(load_bundle(path), precision).onnx())
    assert nodes_without_kernel(model) == []


def test_a_node_without_a_kernel_is_found() -> None:
    value = onnx.helper.make_tensor_value_info
    node = onnx.helper.make_node("Pad", ["x", "pads"], ["y"], name="padding")
    pads = onnx.helper.make_tensor("pads", TensorProto.INT64, (2,), (1, 0))
    for kind, expected in (
        (TensorProto.INT64, ["Pad of int64 (padding)"]),
        (TensorProto.FLOAT, []),
    ):
        graph = onnx.helper.make_graph(
            [node], "pads", [value("x", kind, ["n"])], [value("y", kind, ["m"])], [pads]
        )
        assert nodes_without_kernel(onnx.helper.make_model(graph)) == expected
