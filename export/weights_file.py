"""A graph whose weights lie in the bundle's safetensors files, so that they are stored once.

A weight of the graph is found by its name. What is stored in 16 bits is widened when the bundle is
opened: the graph declares the type that it computes with.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from models.description import TABLES, WEIGHTS
from models.errors import ExportError
from models.tensors import Array


def share_weights(model: onnx.ModelProto, stored: Mapping[str, Array]) -> int:
    """Take the stored weights' values out of the graph, by name; return how many there are.

    A weight whose values differ from what is stored in more than its type is an ExportError.
    """
    shared = 0
    for weight in model.graph.initializer:
        if weight.name not in stored:
            continue
        if weight.data_type not in (TensorProto.FLOAT, TensorProto.FLOAT16):
            continue
        used = numpy_helper.to_array(weight)
        values = stored[weight.name]
        if used.shape != values.shape or not np.array_equal(values.astype(used.dtype), used):
            raise ExportError(f"{weight.name} of the graph is not what the bundle holds")
        _empty(weight)
        shared += 1
    return shared


def _empty(weight: TensorProto) -> None:
    name, kind, dims = weight.name, weight.data_type, list(weight.dims)
    weight.Clear()
    weight.name, weight.data_type = name, kind
    weight.dims.extend(dims)
    weight.data_location = TensorProto.EXTERNAL
    location = TABLES if name.startswith("embedding.") else WEIGHTS
    weight.external_data.add(key="location", value=location)
