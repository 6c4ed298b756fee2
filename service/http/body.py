"""Reading a request's body: bounded before memory is spent, unpacked within the same bound."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import Request

from service.errors import (
    BodyTooLarge,
    InvalidRequest,
    MalformedBody,
    SlowClient,
    UnsupportedMedia,
)
from service.service import Service

_GZIP = 16 + zlib.MAX_WBITS
_INFLATE_STEP = 65_536  # bytes unpacked at a time


class ClientLeft(Exception):  # noqa: N818
    """The caller hung up; there is nobody to answer."""


async def read_body(request: Request, service: Service) -> bytes:
    """The whole body, unpacked; refused as soon as it is known to be over the limit."""
    limit, seconds = service.settings.max_body_bytes, service.settings.body_seconds
    declared = request.headers.get("content-length", "0")
    if declared.isdigit() and int(declared) > limit:
        raise _too_large(limit)
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(seconds):
            async for chunk in body_chunks(request):
                size += len(chunk)
                if size > limit:
                    raise _too_large(limit)
                service.hold(request.state.record, len(chunk))
                parts.append(chunk)
    except TimeoutError:
        raise SlowClient(f"the body did not arrive within {seconds:g} seconds") from None
    return b"".join(parts)


def is_gzipped(request: Request) -> bool:
    """Whether the body must be unpacked; an encoding that is not served is refused."""
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "gzip", "x-gzip"):
        raise UnsupportedMedia(f"content encoding {encoding[:40]!r} is not served; gzip is")
    return encoding != "identity"


async def body_chunks(request: Request) -> AsyncIterator[bytes]:
    """The body as it arrives, unpacked in small steps."""
    unpacker = _Unpacker() if is_gzipped(request) else None
    more = True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientLeft
        more = message.get("more_body", False)
        received = message.get("body", b"")
        if unpacker is None:
            if received:
                yield received
        else:
            for part in unpacker.unpack(received):
                yield part
    if unpacker is not None:
        unpacker.finish()


class _Unpacker:
    """Gzip, several members if there are, never more than one step ahead of its reader."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(_GZIP)
        self._begun = False

    def unpack(self, received: bytes) -> Any:
        """Yield what the received bytes unpack to, a step at a time."""
        while received:
            if self._stream.eof:
                self._stream = zlib.decompressobj(_GZIP)
            self._begun = True
            try:
                part = self._stream.decompress(received, _INFLATE_STEP)
            except zlib.error as error:
                raise MalformedBody(f"the body is not valid gzip: {error}") from None
            if part:
                yield part
            received = self._stream.unconsumed_tail or self._stream.unused_data

    def finish(self) -> None:
        """Complain when the data ended early."""
        if self._begun and not self._stream.eof:
            raise MalformedBody("the gzip data ends before its end")


def content_type(request: Request) -> str:
    """The content type without parameters; a character set other than UTF-8 is refused."""
    media_type, *parameters = request.headers.get("content-type", "application/json").split(";")
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
    try:
        return _JSON.decode(decode_text(body))
    except RecursionError:
        raise MalformedBody("the JSON is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise MalformedBody(f"the body is not JSON: {error}") from None
    except ValueError as error:  # a number of thousands of digits, NaN, Infinity
        raise MalformedBody(f"the body is not JSON that can be read: {error}") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidRequest(f"field {twice[:80]!r} is given twice")
    return found


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON value")


_JSON = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant)


def _too_large(limit: int) -> BodyTooLarge:
    return BodyTooLarge(f"the body is larger than the {limit} bytes that are allowed")
