"""Reading a request's body: bounded before memory is spent, in time that grows with its size.

A caller chooses the body, so nothing here goes through the same bytes again and again, and what
takes longer than a moment runs off the event loop.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import zlib
from collections.abc import AsyncIterator
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any

from service.errors import (
    BodyTooLarge,
    InvalidRequest,
    MalformedBody,
    SlowClient,
    UnsupportedMedia,
)
from service.http.request import ClientLeft, RequestContext
from service.service import Service

MOST_VALUES = 100_000  # in one JSON document: each takes a hundred times its size in memory

_DEEPEST = 100  # levels of lists and objects
_GZIP = 16 + zlib.MAX_WBITS
_UNPACK_FROM = 4096  # bytes: what is left of them is copied at each step and each member's end
_UNPACK_TO = 65_536  # bytes
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


async def read_body(request: RequestContext, service: Service) -> bytes:
    """The whole body, unpacked; refused as soon as it is known to be over the limit."""
    limit, seconds = service.settings.max_body_bytes, service.settings.body_seconds
    declared = whole_number(request.field(b"content-length"))
    if declared is not None and declared > limit:
        raise _too_large(limit)
    if not is_gzipped(request) and (body := request.whole_body()) is not None:
        service.hold(request, len(body))
        if len(body) > limit:
            raise _too_large(limit)
        return body
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(seconds):
            async for chunk in body_chunks(request, service, limit):
                size += len(chunk)
                if size > limit:
                    raise _too_large(limit)
                service.hold(request, len(chunk))
                parts.append(chunk)
    except TimeoutError:
        raise SlowClient(f"the body did not arrive within {seconds:g} seconds") from None
    return b"".join(parts)


def whole_number(text: str) -> int | None:
    """A header's value as a number, or None: `isdigit` alone lets ² through, and any length."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else None


def is_gzipped(request: RequestContext) -> bool:
    """Whether the body must be unpacked; an encoding that is not served is refused."""
    encoding = request.field(b"content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "gzip", "x-gzip"):
        raise UnsupportedMedia(f"content encoding {encoding[:40]!r} is not served; gzip is")
    return encoding != "identity"


async def body_chunks(
    request: RequestContext, service: Service, limit: float = math.inf
) -> AsyncIterator[bytes]:
    """The body as it arrives, of at most `limit` bytes, unpacked in small steps."""
    unpacker = Unpacker() if is_gzipped(request) else None
    size, more = 0, True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientLeft
        more = message.get("more_body", False)
        received = message.get("body", b"")
        size += len(received)
        if size > limit:
            raise _too_large(round(limit))
        if unpacker is None:
            if received:
                yield received
            continue
        unpacker.feed(received)
        # Always in a thread: a few bytes may unpack to a thousand times as many.
        while part := await service.parsing.run(_UNPACK_TO, unpacker.step):
            yield part
    if unpacker is not None:
        unpacker.finish()


class Unpacker:
    """Gzip, several members if there are, never more than one step ahead of its reader."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(_GZIP)
        self._begun = False
        self._received = memoryview(b"")
        self._left = b""  # of the piece that is being unpacked

    def feed(self, received: bytes) -> None:
        """Take more bytes; those before must be unpacked."""
        self._received = memoryview(received)

    def step(self) -> bytes:
        """Some of what the bytes unpack to; nothing when that was all."""
        while piece := self._left or bytes(self._received[:_UNPACK_FROM]):
            if not self._left:
                self._received = self._received[_UNPACK_FROM:]
            if self._stream.eof:
                self._stream = zlib.decompressobj(_GZIP)
            self._begun = True
            try:
                part = self._stream.decompress(piece, _UNPACK_TO)
            except zlib.error as error:
                raise MalformedBody(f"the body is not valid gzip: {error}") from None
            self._left = self._stream.unconsumed_tail or self._stream.unused_data
            if part:
                return part
        return b""

    def finish(self) -> None:
        """Complain when the data ended early."""
        if self._begun and not self._stream.eof:
            raise MalformedBody("the gzip data ends before its end")


def content_type(request: RequestContext) -> str:
    """The content type without parameters; a character set other than UTF-8 is refused."""
    media_type, *parameters = request.field(b"content-type", "application/json").split(";")
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        charset = value.strip().strip('"').lower()
        if name.strip().lower() == "charset" and charset not in ("utf-8", "utf8", "us-ascii"):
            raise UnsupportedMedia("only UTF-8 is served; send the text as UTF-8")
    return media_type.strip().lower()


def decode_text(body: bytes) -> str:
    """The body as text."""
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise MalformedBody(f"the body is not UTF-8: byte {error.start} is wrong") from None


def decode_json(body: bytes) -> Any:
    """The body as JSON; what the standard leaves open is refused rather than guessed."""
    text = decode_text(body)
    brackets = text.count("[") + text.count("{")
    try:
        if brackets + text.count(",") > MOST_VALUES:
            _count_values(text)
        document = _JSON.decode(text)
    except RecursionError:
        raise _too_deep() from None
    except json.JSONDecodeError as error:
        raise MalformedBody(f"the body is not JSON: {error}") from None
    except ValueError as error:  # a number of thousands of digits, NaN, Infinity
        raise MalformedBody(f"the body is not JSON that can be read: {error}") from None
    if brackets > _DEEPEST or ("\\u" in text and _SURROGATE.search(text)):
        _check_depth_and_characters(document)
    return document


def _count_values(text: str) -> None:
    """Refuse too many values before there is an object for each; commas in strings are none."""
    values = place = 0
    while True:
        quote = text.find('"', place)
        end = quote if quote >= 0 else len(text)
        values += 1 + sum(text.count(mark, place, end) for mark in ",[{")
        if values > MOST_VALUES:
            raise InvalidRequest(
                f"the JSON holds more than the {MOST_VALUES} values that are allowed"
            )
        if quote < 0:
            return
        _, place = scanstring(text, quote + 1)


def _check_depth_and_characters(document: Any) -> None:
    level = [document]
    for _ in range(_DEEPEST):
        below: list[Any] = []
        for value in level:
            if isinstance(value, str):
                _check_characters(value)
            elif isinstance(value, list):
                below += value
            elif isinstance(value, dict):
                below += value.keys()
                below += value.values()
        if not below:
            return
        level = below
    raise _too_deep()


def _check_characters(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidRequest(
            "a text has half of a surrogate pair, which is not a character"
        ) from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise InvalidRequest(f"field {name[:80]!r} is given twice")
            seen.add(name)
    return found


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON value")


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{digits[:20]} is too large a number")
    return number


_JSON = json.JSONDecoder(
    object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite
)


def _too_deep() -> MalformedBody:
    return MalformedBody("the JSON is nested too deeply")


def _too_large(limit: int) -> BodyTooLarge:
    return BodyTooLarge(f"the body is larger than the {limit} bytes that are allowed")
