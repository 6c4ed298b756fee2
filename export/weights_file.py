"""A graph whose weights lie in the bundle's safetensors file, so that they are stored once.

Safetensors keeps each tensor's bytes in one piece, which is what ONNX means by external data:
a file, an offset and a length. What the file holds in float16 is cast in the graph; ONNX
Runtime does so once, when it opens the session.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from models.errors import ExportError

_TYPES: dict[str, tuple[int, type[np.floating]]] = {
    "F32": (TensorProto.FLOAT, np.float32),
    "F16": (TensorProto.FLOAT16, np.float16),
}
_MAX_HEADER = 1 << 24


@dataclass(frozen=True)
class StoredTensor:
    """Where a tensor lies in the file."""

    onnx_type: int
    numpy_type: type[np.floating]
    shape: tuple[int, ...]
    offset: int
    length: int


def read_layout(path: Path) -> dict[str, StoredTensor]:
    """Where every floating-point tensor of a safetensors file lies."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        if size > _MAX_HEADER:
            raise ExportError(f"{path.name} has a header of {size} bytes; that is no safetensors")
        header = json.loads(file.read(size))
    layout = {}
    for name, entry in header.items():
        if name == "__metadata__" or entry["dtype"] not in _TYPES:
            continue
        begin, end = entry["data_offsets"]
        layout[name] = StoredTensor(
            *_TYPES[entry["dtype"]], tuple(entry["shape"]), 8 + size + begin, end - begin
        )
    return layout


def share_weights(model: onnx.ModelProto, path: Path) -> int:
    """Point the graph's weights into the file, by name; return how many there are.

    A weight whose values differ from the file's in more than its type is an ExportError.
    """
    layout = read_layout(path)
    content = np.memmap(path, dtype=np.uint8, mode="r")
    graph = model.graph
    casts, shared = [], 0
    for initializer in graph.initializer:
        stored = layout.get(initializer.name)
        if stored is None or initializer.data_type not in (TensorProto.FLOAT, TensorProto.FLOAT16):
            continue
        raw = content[stored.offset : stored.offset + stored.length]
        values = raw.view(stored.numpy_type).reshape(stored.shape)
        used = numpy_helper.to_array(initializer)
        if used.shape != stored.shape or not np.array_equal(values.astype(used.dtype), used):
            raise ExportError(f"{initializer.name} of the graph is not what {path.name} holds")
        if initializer.data_type != stored.onnx_type:
            casts.append(
                helper.make_node(
                    "Cast", [initializer.name + ".stored"], [initializer.name],
                    to=initializer.data_type,
                )
            )  # fmt: skip
            initializer.name += ".stored"
        _point(initializer, stored, path.name)
        shared += 1
    nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in graph.node]
    del graph.node[:]
    graph.node.extend([*casts, *nodes])
    return shared


def _point(initializer: TensorProto, stored: StoredTensor, location: str) -> None:
    name = initializer.name
    initializer.Clear()
    initializer.name = name
    initializer.data_type = stored.onnx_type
    initializer.dims.extend(stored.shape)
    initializer.data_location = TensorProto.EXTERNAL
    for key, value in (
        ("location", location),
        ("offset", stored.offset),
        ("length", stored.length),
    ):
        initializer.external_data.add(key=key, value=str(value))
