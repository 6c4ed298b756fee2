"""Reading a request's body as it comes: bounded before memory is spent, unpacked in small steps.

A body that has come whole with its head, as most have, is read by the request itself.
"""

from __future__ import annotations

import asyncio
import math
import zlib
from collections.abc import AsyncIterator

from service.errors import (
    BodyTooLarge,
    MalformedBody,
    SlowClient,
    UnsupportedMedia,
)
from service.http.request import ClientLeft, RequestContext
from service.service import Service

_GZIP = 16 + zlib.MAX_WBITS
_UNPACK_FROM = 4096  # bytes: what is left of them is copied at each step and each member's end
_UNPACK_TO = 65_536  # bytes


async def read_body(request: RequestContext, service: Service) -> bytes:
    """The whole body, unpacked; refused as soon as it is known to be over the limit."""
    whole = request.whole_body()
    if whole is not None:
        return whole
    limit, seconds = service.settings.max_body_bytes, service.settings.body_seconds
    declared = whole_number(request.field(b"content-length"))
    if declared is not None and declared > limit:
        raise _too_large(limit)
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


def _too_large(limit: int) -> BodyTooLarge:
    return BodyTooLarge(f"the body is larger than the {limit} bytes that are allowed")
