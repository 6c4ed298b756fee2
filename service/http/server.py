"""Running the application: connections that must not dawdle, signals that drain."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import resource
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import uvicorn

from service.http.app import application
from service.http.connection import KEEP_ALIVE_SECONDS, MOST_HEAD_BYTES, Connection, watch
from service.logs import service as log
from service.output import drain
from service.service import Service

_TICK_SECONDS = 0.1  # between looks at what is still to be answered
_SPARE_FILES = 16  # descriptors that connections leave to all else


class Server(uvicorn.Server):
    """On the first signal, drains and ends; on the second, ends at once."""

    def __init__(self, service: Service) -> None:
        super().__init__(
            uvicorn.Config(
                application(service),
                http=Connection,
                h11_max_incomplete_event_size=MOST_HEAD_BYTES,
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=round(KEEP_ALIVE_SECONDS),
                timeout_graceful_shutdown=1,
            )
        )
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # not a line for each bad caller
        self.service = service
        self._draining = False

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals while serving, without raising them again: a drained end is a success."""
        handled = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self.handle_exit) for number in handled}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """Drain first; end at once when asked again."""
        if self._draining:
            drain()
            os._exit(128 + sig)
        self._draining = True
        self.service.drain()
        self._loop.call_soon_threadsafe(self._end_when_drained)
        log.info("draining: %d requests are still to be answered", self.service.in_flight)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and look after the connections from now on."""
        await super().startup(sockets)
        self._loop = asyncio.get_running_loop()
        self.service.most_connections = _most_connections()
        watch(self.server_state.connections, self._loop)

    def _end_when_drained(self) -> None:
        if self.service.drained:
            self.should_exit = True
        else:
            self._loop.call_later(_TICK_SECONDS, self._end_when_drained)


def _most_connections() -> float:
    """Connections for which the process has descriptors."""
    try:
        opened = len(list(Path("/proc/self/fd").iterdir()))
    except OSError:  # no such system
        return math.inf
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return math.inf if most == resource.RLIM_INFINITY else max(1, most - opened - _SPARE_FILES)
