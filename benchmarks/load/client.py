"""An HTTP client that takes little of the processor: whole requests over kept-alive connections."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Self

from benchmarks.load.samples import TIMED_OUT

_Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]
_MOST_HEAD = 1 << 20


@dataclass(frozen=True)
class Reply:
    """What came back; status 0 and a reason when nothing did."""

    status: int
    body: bytes = b""
    reason: str = ""


class Client:
    """Connections to one port of this machine, reused when free."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._free: list[_Pair] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for _reader, writer in self._free:
            writer.close()
        await asyncio.sleep(0)  # they close in the loop's next round

    async def send(self, request: bytes, patience: float) -> Reply:
        """Send a request and read the whole answer, waiting at most `patience` seconds."""
        try:
            async with asyncio.timeout(patience):
                return await self._exchange(request)
        except TimeoutError:
            return Reply(0, reason=TIMED_OUT)
        except (OSError, EOFError, ValueError) as error:
            return Reply(0, reason=f"connection failed: {type(error).__name__}")

    async def _exchange(self, request: bytes) -> Reply:
        reused = self._take()
        if reused is not None:
            try:
                return await self._over(reused, request)
            except (ConnectionError, asyncio.IncompleteReadError) as error:
                if getattr(error, "partial", b""):
                    raise
                # The server closed an idle connection just then: what any client does is ask again.
        fresh = await asyncio.open_connection("127.0.0.1", self._port, limit=_MOST_HEAD)
        return await self._over(fresh, request)

    def _take(self) -> _Pair | None:
        while self._free:
            reader, writer = self._free.pop()
            if not reader.at_eof() and not writer.is_closing():
                return reader, writer
            writer.close()
        return None

    async def _over(self, pair: _Pair, request: bytes) -> Reply:
        reader, writer = pair
        try:
            writer.write(request)
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            body = await _read_body(reader, head)
        except BaseException:
            writer.close()
            raise
        if b"\r\nconnection: close" in head:
            writer.close()
        else:
            self._free.append(pair)
        return Reply(int(head[9:12]), body)


async def _read_body(reader: asyncio.StreamReader, head: bytes) -> bytes:
    if b"\r\ntransfer-encoding: chunked" in head:
        parts = []
        while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
            parts.append(await reader.readexactly(size))
            await reader.readexactly(2)
        await reader.readuntil(b"\r\n")
        return b"".join(parts)
    _, named, rest = head.partition(b"\r\ncontent-length:")
    return await reader.readexactly(int(rest.partition(b"\r\n")[0])) if named else b""
