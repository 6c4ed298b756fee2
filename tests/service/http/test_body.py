"""JSON and gzip from strangers: read as the standard says, in time that grows with the input."""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.errors import EmptyText, InvalidRequest, MalformedBody, ServiceError
from service.http.body import Unpacker, whole_number
from service.http.json_input import MOST_VALUES, decode_json, parse_request
from service.http.schemas import ClassifyRequest, StreamLine
from tests.support.growth import grows_no_faster_than_its_input

_LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
_JSON = st.recursive(
    _LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=60
)


@settings(max_examples=200, deadline=None)
@given(_JSON, st.booleans())
def test_json_reads_as_it_was_written(document: Any, ascii_only: bool) -> None:
    written = json.dumps(document, ensure_ascii=ascii_only)
    assert decode_json(written.encode()) == document


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200) | st.text('{}[]":,\\u0dD8 1e9.-tfn', max_size=60).map(str.encode))
def test_whatever_comes_is_read_or_refused(body: bytes) -> None:
    try:
        document = decode_json(body)
    except ServiceError:
        return
    json.dumps(document, ensure_ascii=False, allow_nan=False).encode()


@pytest.mark.parametrize("levels", [99, 101, 5000, 2_000_000])
@pytest.mark.parametrize("parts", ["[]", ('{"a":', "}")])
def test_depth_is_bounded(levels: int, parts: Any) -> None:
    opening, closing = parts
    body = (opening * levels + "1" + closing * levels).encode()
    if levels < 100:
        decode_json(body)
        return
    with pytest.raises((MalformedBody, InvalidRequest)):
        decode_json(body)


@pytest.mark.parametrize(
    "body",
    [
        b'{"a": 1e999}',
        b"[-1e400]",
        b"1" * 5000,
        b"9" * 4_000_000,
        b"1e" + b"9" * 1_000_000,
        b"NaN",
        b"[Infinity]",
        b'{"a":1}' * 2,
        b'"' + b"\\" * 1_000_001,
        "١٢".encode(),
    ],
)
def test_numbers_and_rubbish_that_no_answer_could_repeat(body: bytes) -> None:
    with pytest.raises(MalformedBody):
        decode_json(body)


@pytest.mark.parametrize(
    "body",
    [
        b'"\\ud800"',
        b'{"id": {"\\uDFFF": 1}}',
        b'[["\\\\", "a\\udc00\\ud800"]]',
        b'"\\ud83d\\ud83d\\ude00"',
    ],
)
def test_half_of_a_surrogate_pair_is_refused_wherever_it_is(body: bytes) -> None:
    with pytest.raises(InvalidRequest, match="surrogate"):
        decode_json(body)


def test_a_whole_pair_and_an_escaped_backslash_are_text() -> None:
    assert decode_json(b'["\\ud83d\\ude00", "\\\\ud800"]') == ["😀", "\\ud800"]


def test_many_values_are_refused_and_many_commas_are_not() -> None:
    inside = json.dumps({"input": 'a, b [c] {d} \\" ' * MOST_VALUES}).encode()
    assert decode_json(inside)["input"].startswith("a, b")
    for body in (b"[" + b"1," * MOST_VALUES + b"1]", b"[" + b"{}," * MOST_VALUES + b"1]"):
        with pytest.raises(InvalidRequest, match="more than the"):
            decode_json(body)
    with pytest.raises(ServiceError):
        decode_json(b'""' * MOST_VALUES + b"," * MOST_VALUES)


def test_a_name_given_twice_is_found_wherever_it_is() -> None:
    names = [f"{index}" for index in range(50_000)]
    for twice in (names[0], names[-1]):
        pairs = ",".join(f'"{name}":0' for name in [*names, twice])
        with pytest.raises(InvalidRequest, match=f"'{twice}' is given twice"):
            decode_json(f"{{{pairs}}}".encode())


_BODIES: dict[str, Callable[[int], bytes]] = {
    "names, the last one twice": lambda n: (
        b"{" + b",".join(b'"%d":0' % i for i in [*range(n // 9), n // 9 - 1]) + b"}"
    ),
    "escapes": lambda n: b'"' + b"\\u0041" * (n // 6) + b'"',
    "surrogates": lambda n: b'"' + b"\\ud83d\\ude00" * (n // 12) + b'"',
    "backslashes": lambda n: b'"' + b"\\\\" * (n // 2) + b'"',
    "opened lists": lambda n: b"[" * n,
    "empty lists": lambda n: b"[" + b"[]," * (n // 3) + b"0]",
    "strings side by side": lambda n: b'"",' * (n // 3),
    "spaces": lambda n: b" " * n + b"1",
    "digits after the point": lambda n: b"0." + b"1" * n,
    "an exponent": lambda n: b"1e" + b"1" * n,
    "zeros of an exponent": lambda n: b"1e" + b"0" * n,
    "quotes that are not closed": lambda n: b'"a\\' * (n // 3),
}


@pytest.mark.parametrize("kind", _BODIES)
def test_reading_json_takes_time_in_proportion(kind: str) -> None:
    def read(body: bytes) -> None:
        try:
            decode_json(body)
        except ServiceError:
            return

    grows_no_faster_than_its_input(_BODIES[kind], read, 400_000)


_REQUESTS: dict[str, Callable[[int], dict[str, Any]]] = {
    "unknown fields": lambda n: {"input": "a", **{f"x{i}": i for i in range(n)}},
    "texts that are none": lambda n: {"input": ["a"] * n + [1]},
    "empty texts": lambda n: {"input": ["a"] * n + [""]},
    "white space": lambda n: {"input": " " * 20 * n},
    "a nested id": lambda n: {"input": "a", "id": [[i] for i in range(n)], "x": 1},
}


@pytest.mark.parametrize("kind", _REQUESTS)
def test_checking_a_request_takes_time_in_proportion(kind: str) -> None:
    def check(document: dict[str, Any]) -> None:
        with pytest.raises(InvalidRequest) as refused:
            parse_request(StreamLine, document)
        assert len(refused.value.fields) <= 20

    grows_no_faster_than_its_input(_REQUESTS[kind], check, 25_000)


def test_the_texts_may_go_by_any_of_their_names() -> None:
    for name in ("input", "inputs", "text"):
        assert parse_request(ClassifyRequest, {name: "a", "top_k": 2}).input == "a"
    with pytest.raises(InvalidRequest, match="inputs and text"):
        parse_request(ClassifyRequest, {"inputs": "a", "text": "b"})
    with pytest.raises(EmptyText, match="text: "):
        parse_request(ClassifyRequest, {"text": " "})


@pytest.mark.parametrize("text", ["²", "١", "9" * 5000, "-1", "+1", "1_0", "", " 1", "0x1", "1.0"])
def test_what_is_no_whole_number(text: str) -> None:
    assert whole_number(text) is None


def test_whole_numbers() -> None:
    assert whole_number("0") == 0
    assert whole_number("00123") == 123


def _unpacked(packed: bytes, size: int) -> Iterator[bytes]:
    unpacker = Unpacker()
    for start in range(0, len(packed), size):
        unpacker.feed(packed[start : start + size])
        while part := unpacker.step():
            assert len(part) <= 65_536
            yield part
    unpacker.finish()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.binary(max_size=3000) | st.integers(0, 300_000).map(bytes), max_size=8), st.data()
)
def test_gzip_unpacks_to_what_was_packed(members: list[bytes], data: st.DataObject) -> None:
    packed = b"".join(gzip.compress(member) for member in members)
    size = data.draw(st.integers(1, max(1, len(packed))))
    assert b"".join(_unpacked(packed, size)) == b"".join(members)


def test_gzip_that_ends_early_or_is_none() -> None:
    packed = gzip.compress(b"a" * 10_000)
    for wrong in (packed[:-1], packed + b"x", packed + b"\x1f", b"\x1f\x8b" + b"\xff" * 20):
        with pytest.raises(MalformedBody):
            list(_unpacked(wrong, 1000))


def _stored(size: int) -> bytes:
    packer = zlib.compressobj(0, wbits=16 + zlib.MAX_WBITS)
    flushed = [packer.compress(b"a") + packer.flush(zlib.Z_FULL_FLUSH) for _ in range(size // 11)]
    return b"".join(flushed) + packer.flush()


_PACKED: dict[str, Callable[[int], bytes]] = {
    "zeros": lambda n: gzip.compress(bytes(100 * n)),
    "empty members": lambda n: gzip.compress(b"") * (n // 20),
    "small members": lambda n: gzip.compress(b"a\n") * (n // 22),
    "stored blocks": _stored,
}


@pytest.mark.parametrize("kind", _PACKED)
def test_unpacking_takes_time_in_proportion(kind: str) -> None:
    def unpack(packed: bytes) -> None:
        for part in _unpacked(packed, 1 << 20):
            assert part

    grows_no_faster_than_its_input(_PACKED[kind], unpack, 100_000)


def test_numbers_that_a_float_can_hold_stay_finite() -> None:
    assert all(math.isfinite(value) for value in decode_json(b"[1e308, -1e308, 1e-999]"))
