"""Bodies that are as expensive as a body of their size can be."""

from __future__ import annotations

import gzip
import json
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

LIMIT = 8 << 20  # the service's own, by default
STREAM = {"content_type": "application/x-ndjson"}
V2 = "/v2/models/elife-nystromformer/infer"


@dataclass(frozen=True)
class Body:
    """A body and where it is sent; made when it is wanted, for some are large."""

    path: str
    make: Callable[[], bytes]
    headers: dict[str, str] = field(default_factory=dict)


def _document(text: str, **options: object) -> bytes:
    return json.dumps({"input": text, **options}, ensure_ascii=False).encode()


def _fitting(unit: str, size: int, **options: object) -> bytes:
    count = size // len(unit.encode())
    return _document(unit * count, **options)


def _keys(count: int) -> bytes:
    pairs = ",".join(f'"k{index}":0' for index in [*range(count), count - 1])
    return f'{{"input":"a",{pairs}}}'.encode()


def _unknown(size: int) -> bytes:
    pairs = ",".join(f'"k{index}":0' for index in range(size // 11))
    return f'{{"input":"a",{pairs}}}'.encode()


def _wrong_outputs(size: int) -> bytes:
    wrong = '{"name":"x"},' * (size // 13)
    tensor = '{"name":"text","shape":[1],"datatype":"BYTES","data":["a"]}'
    return f'{{"inputs":[{tensor}],"outputs":[{wrong}{{}}]}}'.encode()


def _binary_texts(size: int) -> tuple[bytes, int]:
    head = b'{"inputs":[{"name":"text","shape":[1],"datatype":"BYTES"}]}'
    return head + (struct.pack("<I", 1) + b"a") * (size // 5), len(head)


_SMALL_TENSORS, _HEAD = _binary_texts(LIMIT - 200)
_PACKED = {**STREAM, "content_encoding": "gzip"}
_GZIP = {"content_encoding": "gzip"}
_V2_BINARY = {
    "content_type": "application/octet-stream",
    "inference_header_content_length": str(_HEAD),
}

#: The table of the classes in docs/design/attacks.md has a row for each.
BODIES: dict[str, Body] = {
    "dots": Body("/classify", lambda: _document("." * 40_000, evidence=1)),
    "dots, 8 MB": Body("/classify", lambda: _fitting(".", LIMIT - 100, evidence=1)),
    "dots, stream": Body(
        "/classify/stream", lambda: _document("." * 40_000, evidence=1) + b"\n", STREAM
    ),
    "stops and quotes": Body("/classify", lambda: _fitting('..""', 1_000_000, evidence=1)),
    "blank lines": Body("/classify", lambda: _fitting("\n ", 2_000_000, evidence=1) + b" "),
    "emoji, 8 MB": Body("/classify", lambda: _fitting("🧬", LIMIT - 100, evidence=1)),
    "full stops of Chinese, 8 MB": Body(
        "/classify", lambda: _fitting("。", LIMIT - 100, evidence=1)
    ),
    "one word, 8 MB": Body("/classify", lambda: _fitting("a", LIMIT - 100, evidence=1)),
    "escapes, 8 MB": Body(
        "/classify", lambda: b'{"input":"%s"}' % (b"\\u0041" * ((LIMIT - 100) // 6))
    ),
    "white space, 8 MB": Body("/classify", lambda: _fitting(" ", LIMIT - 100)),
    "a key twice": Body("/classify", lambda: _keys(37_000)),
    "a key twice, 8 MB": Body("/classify", lambda: _keys(680_000)),
    "unknown keys, 7 MB": Body("/classify", lambda: _unknown(7_000_000)),
    "unknown keys, 1 MB": Body("/classify", lambda: _unknown(1_000_000)),
    "empty lists, 8 MB": Body("/classify", lambda: b"[" + b"[]," * (LIMIT // 3 - 10) + b"0]"),
    "depth, 8 MB": Body("/classify", lambda: b"[" * (LIMIT - 1)),
    "numbers, 8 MB": Body("/classify", lambda: b'{"input":[' + b"1," * (LIMIT // 2 - 100) + b"1]}"),
    "a number, 8 MB": Body("/classify", lambda: b"9" * (LIMIT - 10)),
    "many texts, much evidence": Body(
        "/classify",
        lambda: json.dumps(
            {
                "input": ["A sentence of forty letters or a few more. " * 100] * 1000,
                "evidence": 100,
                "timeout_ms": 60_000,
            }
        ).encode(),
    ),
    "wrong outputs, 6.5 MB": Body(V2, lambda: _wrong_outputs(6_500_000)),
    "wrong outputs, 1 MB": Body(V2, lambda: _wrong_outputs(1_000_000)),
    "small tensors, 8 MB": Body(V2, lambda: _SMALL_TENSORS, _V2_BINARY),
    "gzip of newlines, stream": Body(
        "/classify/stream", lambda: gzip.compress(b"\n" * 67_000_000), _PACKED
    ),
    "gzip of spaces, 1 MB, stream": Body(
        "/classify/stream", lambda: gzip.compress(b" " * 1_000_000_000, 9), _PACKED
    ),
    "gzip of empty members": Body("/classify", lambda: gzip.compress(b"") * 400_000, _GZIP),
    "gzip of empty members, stream": Body(
        "/classify/stream", lambda: gzip.compress(b"") * 400_000, _PACKED
    ),
    "short lines, stream": Body("/classify/stream", lambda: b"0\n" * 20_000, STREAM),
    "blank lines, stream": Body("/classify/stream", lambda: b"\n" * 50_000_000, STREAM),
    "a plain text, 8 MB": Body(
        "/classify", lambda: "é".encode() * (LIMIT // 2), {"content_type": "text/plain"}
    ),
}
