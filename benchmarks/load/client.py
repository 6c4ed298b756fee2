"""An HTTP client that takes little of the processor: whole requests over kept-alive connections.

It shares the machine with the server that it measures, so requests are ready-made bytes, answers
are parsed by httptools, and a connection is a protocol without streams.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Self, cast

import httptools

from benchmarks.load.samples import REFUSED_CONNECTION, TIMED_OUT


@dataclass(frozen=True)
class Reply:
    """An answer; status 0 and a reason when none came."""

    status: int
    body: bytes = b""
    reason: str = ""


class Client:
    """Connections to one port of this machine, reused when free."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._free: list[_Connection] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for connection in self._free:
            connection.close()
        await asyncio.sleep(0)  # transports close in the loop's next iteration

    async def send(self, request: bytes, patience: float) -> Reply:
        """Send a request and read the whole answer, waiting at most `patience` seconds."""
        try:
            async with asyncio.timeout(patience):
                return await self._exchange(request)
        except TimeoutError:
            return Reply(0, reason=TIMED_OUT)
        except ConnectionRefusedError:
            return Reply(0, reason=REFUSED_CONNECTION)
        except (OSError, httptools.HttpParserError) as error:
            return Reply(0, reason=f"connection failed: {type(error).__name__}")

    async def _exchange(self, request: bytes) -> Reply:
        while self._free:
            connection = self._free.pop()
            if connection.usable:
                try:
                    return await self._over(connection, request)
                except ConnectionError:
                    if connection.has_received:
                        raise
                    # The server closed an idle connection: any client sends such a request again.
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(_Connection, "127.0.0.1", self._port)
        return await self._over(connection, request)

    async def _over(self, connection: _Connection, request: bytes) -> Reply:
        try:
            reply = await connection.send(request)
        except BaseException:
            connection.close()
            raise
        if connection.usable:
            self._free.append(connection)
        return reply


class _Connection(asyncio.Protocol):
    """One connection, which carries one request at a time."""

    def __init__(self) -> None:
        self.usable = False
        self.has_received = False

    def send(self, request: bytes) -> asyncio.Future[Reply]:
        self._answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._parser = httptools.HttpResponseParser(self)
        self._body: list[bytes] = []
        self.has_received = False
        self._transport.write(request)
        return self._answer

    def close(self) -> None:
        self.usable = False
        self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.usable = True

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.usable = False
        self._fail(ConnectionResetError("closed before the answer was complete"))

    def data_received(self, data: bytes) -> None:
        self.has_received = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(error)

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        if not self._parser.should_keep_alive():
            self.close()
        if not self._answer.done():
            self._answer.set_result(Reply(self._parser.get_status_code(), b"".join(self._body)))

    def _fail(self, error: Exception) -> None:
        answer = getattr(self, "_answer", None)
        if answer is not None and not answer.done():
            answer.set_exception(error)
