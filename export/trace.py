"""PyTorch to an ONNX graph that takes any batch and any length."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import onnx
import onnx_ir
import torch
from onnxscript.optimizer import optimize_ir
from torch import Tensor, nn

from export.fused_attention import TRANSLATIONS
from models.errors import ExportError
from models.networks import Network

OPSET = 20
#: What goes in and comes out, each with the dimensions that must stay symbols.
SYMBOLIC = {
    "ids": ("batch", "tokens"),
    "lengths": ("batch",),
    "logits": ("batch",),
    "states": ("batch", "tokens"),
    "counts": ("batch",),
}
_PREFIX = "model."  # of the names of weights in a traced graph


class _Traced(nn.Module):
    """The network with what its logits are a mean of.

    States and counts are there in any case; a token's contributions are its state, times the head,
    divided by the count.
    """

    def __init__(self, model: Network) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        states, count = self.model.read(ids, lengths)  # (batch, n, width), (batch,)
        return self.model.head(states.sum(dim=1) / count[:, None]), states, count


def trace(model: Network) -> onnx.ModelProto:
    """Export the network, its weights named as in its state; ExportError when it cannot be."""
    # With one segment only, the exporter would take slices along segments for no-ops.
    tokens = 3 * int(model.config.attention_params.get("segment", 128)) + 1
    tokens = min(tokens, model.config.max_length or tokens)
    ids = torch.zeros(3, tokens, dtype=torch.int64)
    lengths = torch.tensor([tokens, (tokens + 1) // 2, 1])
    # Without gradients, since the exporter would take a loop apart for its backward pass.
    with quiet(), torch.no_grad():
        try:
            program = torch.onnx.export(
                _Traced(model.eval()),
                (ids, lengths),
                dynamo=True,
                opset_version=OPSET,
                input_names=["ids", "lengths"],
                output_names=["logits", "states", "counts"],
                dynamic_shapes={"ids": {0: "batch", 1: "tokens"}, "lengths": {0: "batch"}},
                custom_translation_table=TRANSLATIONS,
                optimize=False,
                verbose=False,
            )
        except torch.onnx.errors.OnnxExporterError as error:
            raise ExportError(f"PyTorch's exporter failed: {_innermost(error)}") from error
        if program is None:
            raise ExportError("PyTorch's exporter gave no program")
        optimize_ir(program.model, should_fold=_leave_weights)
    graph = program.model_proto
    rename_weights(graph, lambda name: name.removeprefix(_PREFIX))
    check_symbolic(graph)
    return graph


def check_symbolic(model: onnx.ModelProto) -> dict[str, list[str | int]]:
    """The dimensions of inputs and outputs; ExportError when one that must vary is fixed."""
    found: dict[str, list[str | int]] = {}
    for value in (*model.graph.input, *model.graph.output):
        if value.name not in SYMBOLIC:
            continue
        shape = value.type.tensor_type.shape.dim
        found[value.name] = [dim.dim_param or dim.dim_value for dim in shape]
    for name, symbols in SYMBOLIC.items():
        dims = tuple(found.get(name, ()))[: len(symbols)]
        if dims != symbols:
            raise ExportError(f"{name} came out as {dims}; it must be {symbols}")
    return found


def rename_weights(model: onnx.ModelProto, new_name: Callable[[str], str]) -> None:
    """Give the graph's weights other names, wherever they are used."""
    renamed = {weight.name: new_name(weight.name) for weight in model.graph.initializer}
    for weight in model.graph.initializer:
        weight.name = renamed[weight.name]
    for node in all_nodes(model.graph):
        for index, name in enumerate(node.input):
            node.input[index] = renamed.get(name, name)


def all_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """A graph's nodes, and those of the bodies of its loops."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from all_nodes(attribute.g)


def inputs_of(node: onnx.NodeProto) -> list[str]:
    """What a node reads, the body of a loop included, which sees all that stands around it."""
    bodies = [attribute.g for attribute in node.attribute if attribute.HasField("g")]
    inner = [name for body in bodies for each in all_nodes(body) for name in each.input]
    return [*node.input, *inner]


def _leave_weights(node: onnx_ir.Node) -> bool | None:
    """The optimiser's question whether to fold a node: not with weights, else as it likes."""
    names = [value.name or "" for value in node.inputs if value is not None]
    return False if any(name.startswith(_PREFIX) for name in names) else None


def _innermost(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"


@contextmanager
def quiet() -> Iterator[None]:
    """Exporters tell of what they do in logs and warnings; what counts is checked instead."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            logging.disable(level)
