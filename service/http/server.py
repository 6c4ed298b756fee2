"""Running the application: connections that must not dawdle, signals that drain."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import uvicorn

from service.http.app import create_app
from service.http.connections import protocol
from service.logs import service as log
from service.output import drain
from service.service import Service

_KEEP_ALIVE_SECONDS = 75


class Server(uvicorn.Server):
    """On the first signal, drains and ends; on the second, ends at once."""

    def __init__(self, service: Service) -> None:
        super().__init__(
            uvicorn.Config(
                create_app(service),
                http=protocol(service),
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=_KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=1,
            )
        )
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
        log.info("draining: %d requests are still to be answered", self.service.in_flight)

    async def on_tick(self, counter: int) -> bool:
        """End once everything accepted is answered."""
        self.should_exit = self.should_exit or self.service.drained
        return await super().on_tick(counter)
