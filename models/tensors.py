"""Weights in memory: what a safetensors file holds, as NumPy arrays. Nothing in it runs.

The file is a length, a header in JSON that names each tensor's type, shape and place, and the
tensors' bytes. Nothing is taken from it before the header is known to fit the file.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.errors import BundleError
from models.plain_json import parse_json

Array = NDArray[np.floating[Any]]

_TYPES: Mapping[str, type[np.floating[Any]]] = {"F32": np.float32, "F16": np.float16}
_MAX_HEADER = 1 << 20
_MAX_TENSORS = 10_000
_NAME = re.compile(r"[A-Za-z0-9_.]{1,200}")


@dataclass(frozen=True)
class Stored:
    """A tensor's type and shape, and where its bytes begin and end in the file."""

    type: type[np.floating[Any]]
    shape: tuple[int, ...]
    start: int
    end: int


def read_layout(file: io.BufferedIOBase, size: int, name: str) -> dict[str, Stored]:
    """What a safetensors file of `size` bytes says that it holds; `name` is for errors."""
    length = int.from_bytes(file.read(8), "little")
    if length > min(_MAX_HEADER, size - 8):
        raise BundleError(f"{name} is not a safetensors file: its header would have {length} bytes")
    try:
        return _check_header(parse_json(file.read(length)), 8 + length, size)
    except (ValueError, KeyError, TypeError) as error:
        raise BundleError(f"{name} is not a safetensors file that can be read: {error}") from None


def read_tensors(content: bytes, layout: Mapping[str, Stored], name: str) -> dict[str, Array]:
    """The tensors of a file's content, which share its memory; each entry is a finite number."""
    tensors = {}
    for tensor, stored in layout.items():
        flat = np.frombuffer(content[stored.start : stored.end], dtype=stored.type)
        if not np.isfinite(flat).all():
            raise BundleError(f"{name}: {tensor} holds what is no finite number")
        tensors[tensor] = flat.reshape(stored.shape)
    return tensors


def _check_header(header: Any, start: int, size: int) -> dict[str, Stored]:
    header.pop("__metadata__", None)
    if len(header) > _MAX_TENSORS:
        raise ValueError(f"it names {len(header)} tensors; at most {_MAX_TENSORS} are allowed")
    layout = {name: _check_tensor(name, about, start) for name, about in header.items()}
    end = start
    for stored in sorted(layout.values(), key=lambda stored: (stored.start, stored.end)):
        if stored.start != end:
            raise ValueError("its tensors overlap or leave gaps")
        end = stored.end
    if end != size:
        raise ValueError(f"its tensors end at {end}, the file at {size}")
    return layout


def _check_tensor(name: str, about: Any, start: int) -> Stored:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name[:100]!r} is no name of a tensor")
    if about["dtype"] not in _TYPES:
        raise ValueError(f"{name} is of type {about['dtype']!r:.50}, not of F32 or F16")
    kind = _TYPES[about["dtype"]]
    shape, (begin, end) = tuple(about["shape"]), about["data_offsets"]
    whole = all(type(number) is int and number >= 0 for number in (*shape, begin, end))
    if not whole or len(shape) > 8 or math.prod(shape) * kind().itemsize != end - begin:
        raise ValueError(f"{name} has another size than its shape")
    return Stored(kind, shape, start + begin, start + end)
