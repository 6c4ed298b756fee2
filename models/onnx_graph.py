"""An ONNX file, read as far as it must be to believe it: by hand, so that nothing in it runs.

An ONNX file is nested protobuf messages. Read are its operators, and each tensor whose values lie
in another file; such a tensor may only be a weight of the main graph, which gets its values from
the bundle's own weights, never from a path. Branches, loops and functions, which could hide more,
are refused; all but the body of a Scan, which runs once for each entry of its input, and so ends.
It is read like the main graph, and may hold neither a tensor of another file nor a further body.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.errors import BundleError

DOMAINS = frozenset({"", "ai.onnx", "com.microsoft"})
#: ONNX's numbers for the types that weights can have.
TYPES: Mapping[int, type[np.floating[Any]]] = {1: np.float32, 10: np.float16}

_MAX_NODES = 100_000
_LENGTH = 2  # the wire type of a length and so many bytes

# Field numbers of onnx.proto.
_MODEL_GRAPH, _MODEL_OPSET, _MODEL_TRAINING, _MODEL_FUNCTIONS = 7, 8, 20, 25
_GRAPH_NODE, _GRAPH_TENSOR, _GRAPH_OUTPUT, _GRAPH_SPARSE = 1, 5, 12, 15
_NODE_INPUT, _NODE_OPERATOR, _NODE_ATTRIBUTE, _NODE_DOMAIN = 1, 4, 5, 7
_ATTRIBUTE_TENSORS, _ATTRIBUTE_GRAPH = (5, 10), 6
_ATTRIBUTE_OTHERS = {6: "a branch", 11: "a branch", 21: "a parameter", 22: "sparse", 23: "sparse"}
_TENSOR_DIMS, _TENSOR_TYPE, _TENSOR_NAME, _TENSOR_RAW = 1, 2, 8, 9
_TENSOR_EXTERNAL, _TENSOR_PLACE = 13, 14

Field = tuple[int, int, int, int]  # number, wire type, and where its value begins and ends


@dataclass(frozen=True)
class OnnxGraph:
    """A checked file.

    content    its bytes
    external   the weights it takes from the bundle: type and shape by name
    gathered   those of them that rows are only looked up in
    operators  "domain:operator" of every node
    outputs    the names of what it computes
    """

    content: bytes
    external: Mapping[str, tuple[type[np.floating[Any]], tuple[int, ...]]]
    gathered: frozenset[str]
    operators: frozenset[str]
    outputs: tuple[str, ...]


def read_graph(content: bytes, name: str) -> OnnxGraph:
    """Check an ONNX file; `name` is for the BundleError that says what is wrong with it."""
    try:
        return _Reader(content).read()
    except (ValueError, IndexError, UnicodeDecodeError) as error:
        raise BundleError(f"{name} is not an ONNX graph that can be served: {error}") from None


def with_weights(
    graph: OnnxGraph, weights: Mapping[str, NDArray[Any]], first_row_only: frozenset[str]
) -> bytes:
    """The file with the values of these weights in it, of some of them the first row alone."""
    content = graph.content
    parts = []
    for number, _, start, end, whole in _with_places(content, 0, len(content)):
        if number != _MODEL_GRAPH:
            parts.append(content[whole:end])
            continue
        inner = []
        for field, kind, begin, stop, entire in _with_places(content, start, end):
            name = _tensor_name(content, begin, stop) if field == _GRAPH_TENSOR else ""
            if kind == _LENGTH and name in graph.external and name in weights:
                values = weights[name][:1] if name in first_row_only else weights[name]
                inner.append(_field(_GRAPH_TENSOR, _tensor(name, values)))
            else:
                inner.append(content[entire:stop])
        parts.append(_field(_MODEL_GRAPH, b"".join(inner)))
    return b"".join(parts)


class _Reader:
    def __init__(self, content: bytes) -> None:
        self.content = content
        self.external: dict[str, tuple[type[np.floating[Any]], tuple[int, ...]]] = {}
        self.operators: set[str] = set()
        self.looked_up: set[str] = set()
        self.used_otherwise: set[str] = set()
        self.outputs: list[str] = []
        self.nodes = 0

    def read(self) -> OnnxGraph:
        graphs = 0
        for number, _, start, end in _fields(self.content, 0, len(self.content)):
            if number == _MODEL_GRAPH:
                graphs += 1
                self._read_graph(start, end)
            elif number == _MODEL_OPSET:
                self._check_domain(self._text_of(start, end, 1))
            elif number in (_MODEL_TRAINING, _MODEL_FUNCTIONS):
                raise ValueError("it holds functions of its own")
        if graphs != 1 or not self.nodes:
            raise ValueError(f"it holds {graphs} graphs with {self.nodes} nodes")
        gathered = self.looked_up - self.used_otherwise
        return OnnxGraph(
            self.content,
            self.external,
            frozenset(gathered & self.external.keys()),
            frozenset(self.operators),
            tuple(self.outputs),
        )

    def _read_graph(self, start: int, end: int) -> None:
        for number, _, begin, stop in _fields(self.content, start, end):
            if number == _GRAPH_NODE:
                self._read_node(begin, stop)
            elif number == _GRAPH_TENSOR:
                self._read_weight(begin, stop)
            elif number == _GRAPH_OUTPUT:
                self.outputs.append(self._text_of(begin, stop, 1))
            elif number == _GRAPH_SPARSE:
                raise ValueError("it holds sparse tensors")

    def _read_body(self, start: int, end: int) -> None:
        for number, _, begin, stop in _fields(self.content, start, end):
            if number == _GRAPH_NODE:
                self._read_node(begin, stop, in_body=True)
            elif number == _GRAPH_TENSOR and self._is_external(begin, stop):
                raise ValueError("the body of a loop takes values from another file")
            elif number == _GRAPH_SPARSE:
                raise ValueError("it holds sparse tensors")

    def _read_node(self, start: int, end: int, *, in_body: bool = False) -> None:
        self.nodes += 1
        if self.nodes > _MAX_NODES:
            raise ValueError(f"it has more than {_MAX_NODES} nodes")
        domain, operator = (
            self._text_of(start, end, field) for field in (_NODE_DOMAIN, _NODE_OPERATOR)
        )
        self._check_domain(domain)
        inputs = []
        has_body = operator == "Scan" and not in_body
        for number, _, begin, stop in _fields(self.content, start, end):
            if number == _NODE_INPUT:
                inputs.append(self.content[begin:stop].decode())
            elif number == _NODE_ATTRIBUTE:
                self._read_attribute(begin, stop, has_body=has_body)
        self.operators.add(f"{domain}:{operator}")
        self.looked_up.update(inputs[:1] if operator == "Gather" else ())
        self.used_otherwise.update(inputs[1:] if operator == "Gather" else inputs)

    def _read_attribute(self, start: int, end: int, *, has_body: bool) -> None:
        for number, _, begin, stop in _fields(self.content, start, end):
            if number == _ATTRIBUTE_GRAPH and has_body:
                self._read_body(begin, stop)
            elif number in _ATTRIBUTE_OTHERS:
                raise ValueError(f"a node has an attribute that is {_ATTRIBUTE_OTHERS[number]}")
            if number in _ATTRIBUTE_TENSORS and self._is_external(begin, stop):
                raise ValueError("an attribute takes its values from another file")

    def _read_weight(self, start: int, end: int) -> None:
        if not self._is_external(start, end):
            return
        name, kind = "", 0
        dims: list[int] = []
        for number, _, begin, stop in _fields(self.content, start, end):
            if number == _TENSOR_NAME:
                name = self.content[begin:stop].decode()
            elif number == _TENSOR_TYPE:
                kind, _ = _varint(self.content, begin, stop)
            elif number == _TENSOR_DIMS:
                dims += self._numbers(begin, stop)  # one, or several packed
        if not name or name in self.external or kind not in TYPES or len(dims) > 8:
            raise ValueError(f"its weight {name[:100]!r} is named twice or of a foreign type")
        self.external[name] = (TYPES[kind], tuple(dims))

    def _numbers(self, at: int, end: int) -> Iterator[int]:
        while at < end:
            number, at = _varint(self.content, at, end)
            yield number

    def _is_external(self, start: int, end: int) -> bool:
        for number, _, begin, stop in _fields(self.content, start, end):
            if number == _TENSOR_EXTERNAL:
                return True
            if number == _TENSOR_PLACE and _varint(self.content, begin, stop)[0]:
                return True
        return False

    def _check_domain(self, domain: str) -> None:
        if domain not in DOMAINS:
            raise ValueError(f"it asks for operators of the domain {domain[:60]!r}")

    def _text_of(self, start: int, end: int, wanted: int) -> str:
        """A text of a message; given twice, readers could differ on which one counts."""
        texts = [
            self.content[begin:stop].decode()
            for number, _, begin, stop in _fields(self.content, start, end)
            if number == wanted
        ]
        if len(texts) > 1:
            raise ValueError("a name is given twice")
        return texts[0] if texts else ""


def _fields(content: bytes, start: int, end: int) -> Iterator[Field]:
    for number, wire, begin, stop, _ in _with_places(content, start, end):
        yield number, wire, begin, stop


def _with_places(content: bytes, at: int, end: int) -> Iterator[tuple[int, int, int, int, int]]:
    """The fields of a message: number, wire type, where the value and the whole field lie."""
    while at < end:
        whole = at
        key, at = _varint(content, at, end)
        number, wire = key >> 3, key & 7
        start = at
        if wire == 0:
            _, at = _varint(content, at, end)
        elif wire == _LENGTH:
            length, start = _varint(content, at, end)
            at = start + length
        elif wire in (1, 5):
            at += 8 if wire == 1 else 4
        else:
            raise ValueError(f"it has a field of the unknown kind {wire}")
        if at > end or number == 0:
            raise ValueError("it ends in the middle of a field")
        yield number, wire, start, at, whole


def _varint(content: bytes, at: int, end: int) -> tuple[int, int]:
    """A number of seven bits a byte, and where it ends."""
    number = shift = 0
    while at < end and shift < 70:
        byte = content[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at
        shift += 7
    raise ValueError("it ends in the middle of a number")


def _tensor_name(content: bytes, start: int, end: int) -> str:
    for number, _, begin, stop in _fields(content, start, end):
        if number == _TENSOR_NAME:
            return content[begin:stop].decode()
    return ""


def _tensor(name: str, values: NDArray[Any]) -> bytes:
    kind = next(number for number, numpy_type in TYPES.items() if values.dtype == numpy_type)
    dims = b"".join(_key(_TENSOR_DIMS, 0) + _number(size) for size in values.shape)
    return (
        dims
        + _key(_TENSOR_TYPE, 0)
        + _number(kind)
        + _field(_TENSOR_NAME, name.encode())
        + _field(_TENSOR_RAW, values.astype(values.dtype.newbyteorder("<")).tobytes())
    )


def _field(number: int, value: bytes) -> bytes:
    return _key(number, _LENGTH) + _number(len(value)) + value


def _key(number: int, wire: int) -> bytes:
    return _number(number << 3 | wire)


def _number(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
