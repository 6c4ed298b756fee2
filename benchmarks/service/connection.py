"""HTTP connections that send ready-made requests, one at a time each, and are reused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

_LENGTH = b"content-length:"


class Pool:
    """Connections to one port of this machine; as many as there are requests at once."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._free: list[_Connection] = []
        self._opening: set[asyncio.Task[None]] = set()

    def send(self, request: bytes, answered: Callable[[int], None]) -> None:
        """Send a request; `answered` is called with the answer's status, 0 when none came."""
        while self._free:
            connection = self._free.pop()
            if connection.usable:
                connection.send(request, answered)
                return
        task = asyncio.create_task(self._open_and_send(request, answered))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    def close(self) -> None:
        """Close what is free."""
        for connection in self._free:
            connection.close()

    async def _open_and_send(self, request: bytes, answered: Callable[[int], None]) -> None:
        loop = asyncio.get_running_loop()
        try:
            _, connection = await loop.create_connection(
                lambda: _Connection(self._free.append), "127.0.0.1", self._port
            )
        except OSError:
            answered(0)
        else:
            connection.send(request, answered)


class _Connection(asyncio.Protocol):
    """One connection; `freed` is called with it when an answer is complete."""

    def __init__(self, freed: Callable[[_Connection], None]) -> None:
        self.usable = False
        self._freed = freed
        self._answered: Callable[[int], None] | None = None
        self._received = b""

    def send(self, request: bytes, answered: Callable[[int], None]) -> None:
        self._answered = answered
        self._transport.write(request)

    def close(self) -> None:
        self.usable = False
        self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.usable = True

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.usable = False
        self._finish(0)

    def data_received(self, data: bytes) -> None:
        received = self._received = self._received + data if self._received else data
        head_end = received.find(b"\r\n\r\n")
        if head_end < 0:
            return
        head = received[:head_end].lower()
        start = head.index(_LENGTH) + len(_LENGTH)
        end = head.find(b"\r", start)
        length = int(head[start:] if end < 0 else head[start:end])
        if len(received) < head_end + 4 + length:
            return
        if b"connection: close" in head:
            self.close()
        self._finish(int(head[9:12]))

    def _finish(self, status: int) -> None:
        answered, self._answered, self._received = self._answered, None, b""
        if self.usable:
            self._freed(self)
        if answered is not None:
            answered(status)
