"""Contributions on request: a graph that computes them only when asked."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

#: The input that asks for contributions: a single truth value.
EXPLAIN = "explain"


def explain_on_request(model: onnx.ModelProto) -> None:
    """Move what only the contributions need into the branch of an `If` on the input `explain`.

    ONNX Runtime computes every output of a graph, fetched or not; a branch not taken costs
    nothing.
    """
    graph = model.graph
    contributions = next(value for value in graph.output if value.name == "contributions")
    nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in graph.node]
    shared = _needed_for(nodes, "logits")
    own = [node for index, node in enumerate(nodes) if index not in shared]
    for node in own:
        for index, name in enumerate(node.output):
            if name == contributions.name:
                node.output[index] = "explained"
    shown = onnx.ValueInfoProto()
    shown.CopyFrom(contributions)
    shown.name = "explained"
    labels = contributions.type.tensor_type.shape.dim[2].dim_value
    nothing = helper.make_node(
        "Constant",
        [],
        ["unexplained"],
        value=numpy_helper.from_array(np.zeros((0, 0, labels), dtype=np.float32)),
    )
    empty = helper.make_tensor_value_info("unexplained", TensorProto.FLOAT, (0, 0, labels))
    branch = helper.make_node(
        "If",
        [EXPLAIN],
        [contributions.name],
        then_branch=helper.make_graph(own, "explain", [], [shown]),
        else_branch=helper.make_graph([nothing], "leave_out", [], [empty]),
    )
    del graph.node[:]
    graph.node.extend([*(nodes[index] for index in sorted(shared)), branch])
    graph.input.append(helper.make_tensor_value_info(EXPLAIN, TensorProto.BOOL, ()))


def _needed_for(nodes: list[onnx.NodeProto], output: str) -> set[int]:
    """The places of the nodes that an output depends on."""
    makers = {name: index for index, node in enumerate(nodes) for name in node.output}
    needed: set[int] = set()
    wanted = [output]
    while wanted:
        index = makers.get(wanted.pop())
        if index is not None and index not in needed:
            needed.add(index)
            wanted.extend(nodes[index].input)
    return needed
