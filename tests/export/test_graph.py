"""What a graph becomes on its way into a bundle."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from export.trace import check_symbolic
from export.weights_file import share_weights
from models.bundle import Bundle
from models.errors import ExportError
from models.onnx_graph import read_graph, with_weights
from models.onnx_network import read_network
from tests.support.small_bundle import shared_bundle


def executed(bundle: Bundle, tmp_path: Path) -> list[list[int]]:
    """The shapes of everything a run computed, as ONNX Runtime's profiler tells."""
    options = onnxruntime.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "profile")
    session = onnxruntime.InferenceSession(read_network(bundle, "fp32").onnx(), options)
    ids = np.ones((2, 23), np.int64)
    session.run(["logits"], {"ids": ids, "lengths": np.array([23, 7])})
    events = json.loads(Path(session.end_profiling()).read_text())
    kernels = [event for event in events if event["name"].endswith("_kernel_time")]
    return [
        next(iter(output.values()))
        for event in kernels
        for output in event["args"]["output_type_shape"]
    ]


def test_contributions_are_no_part_of_the_graph(tmp_path: Path) -> None:
    labels, width = 3, 16
    shapes = executed(shared_bundle(), tmp_path)
    assert [2, 23, labels] not in shapes
    assert [2, 23, width] in shapes


def test_dimensions_that_must_vary_are_symbols() -> None:
    model = onnx.load(shared_bundle().file("model.onnx"), load_external_data=False)
    assert check_symbolic(model) == {
        "ids": ["batch", "tokens"],
        "lengths": ["batch"],
        "logits": ["batch", 3],
        "states": ["batch", "tokens", 16],
        "counts": ["batch"],
    }
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 37
    with pytest.raises(ExportError, match="ids came out as"):
        check_symbolic(model)


def test_weights_are_stored_once() -> None:
    bundle = shared_bundle()
    model = onnx.load(bundle.file("model.onnx"), load_external_data=False)
    outside = [w for w in model.graph.initializer if w.data_location == TensorProto.EXTERNAL]
    inside = [w for w in model.graph.initializer if w.data_location != TensorProto.EXTERNAL]
    assert {weight.name for weight in outside} == set(bundle.tensors())
    assert sum(weight.ByteSize() for weight in inside) < 10_000
    places = {weight.name: weight.external_data[0].value for weight in outside}
    assert places["embedding.weight"] == "tables.safetensors"
    assert places["head.weight"] == "weights.safetensors"


def test_a_graph_tells_nothing_of_the_machine_it_was_made_on() -> None:
    content = shared_bundle().file("model.onnx").read_bytes()
    assert str(Path(__file__).resolve().parent.parent.parent).encode() not in content
    assert b"stack_trace" not in content


def small_product(weight: np.ndarray[tuple[int, int], np.dtype[np.float32]]) -> onnx.ModelProto:
    """x @ weight"""
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "weight"], ["y"])],
        "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ("n", weight.shape[0]))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ("n", weight.shape[1]))],
        [numpy_helper.from_array(weight, "weight")],
    )
    opsets = [helper.make_opsetid("", 20)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


@pytest.mark.parametrize("stored", [np.float16, np.float32])
def test_a_graph_gets_its_weights_from_what_is_stored(stored: type[np.floating]) -> None:
    weight = np.random.default_rng(0).normal(size=(4, 3)).astype(stored)
    model = small_product(weight.astype(np.float32))
    assert share_weights(model, {"other": np.ones(5, np.float32), "weight": weight}) == 1
    graph = read_graph(model.SerializeToString(), "a product")
    assert graph.external == {"weight": (np.float32, (4, 3))}
    content = with_weights(graph, {"weight": weight.astype(np.float32)}, frozenset())
    (found,) = onnxruntime.InferenceSession(content).run(None, {"x": np.eye(4, dtype=np.float32)})
    np.testing.assert_array_equal(found, weight.astype(np.float32))


def test_weights_that_are_not_those_that_are_stored_are_refused() -> None:
    weight = np.ones((4, 3), np.float32)
    with pytest.raises(ExportError, match="weight of the graph is not what the bundle holds"):
        share_weights(small_product(weight), {"weight": weight * 2})


def test_softmax_is_fused_and_needs_no_square_matrix() -> None:
    bundle = shared_bundle("softmax")
    model = onnx.load(bundle.file("model.onnx"), load_external_data=False)
    kinds = [node.op_type for node in model.graph.node]
    assert kinds.count("MultiHeadAttention") == bundle.manifest.config.layers
    assert "Softmax" not in kinds
    n = 8192
    script = f"""
import resource, sys
import numpy as np
from models.bundle import load_bundle
from service.engines import open_engine
engine = open_engine(load_bundle(sys.argv[1]), engine="onnxruntime")
engine.run(np.ones((2, 64), np.int64), np.array([64, 9]))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
engine.run(np.ones((2, {n}), np.int64), np.array([{n}, {n // 3}]))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    run = subprocess.run(
        [sys.executable, "-c", script, str(bundle.path)], check=True, capture_output=True
    )
    unit = 1 if sys.platform == "darwin" else 1024
    square = 4 * bundle.manifest.config.heads * n * n  # one document's scores
    assert int(run.stdout) * unit < square / 4
