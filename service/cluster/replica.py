"""A replica: the whole service, its queue and its threads included, as Ray Serve runs it.

Ray's proxy holds the connections; requests and callers' leaving arrive here by its ASGI channel.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

from starlette.types import ASGIApp, Receive, Scope, Send

from service import logs
from service.cluster.scaling import QUEUE_SECONDS
from service.commands.serve import SWITCH_SECONDS
from service.http.app import application
from service.service import Service
from service.settings import read_settings
from service.startup.deployment import load_deployment

if TYPE_CHECKING:
    from service.http.request import RequestContext

_LOOK = 0.05  # seconds


class Replica:
    """One service; Ray builds it from settings as `longdoc serve` takes them."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        chosen = read_settings(settings)
        logs.configure(chosen.log_format, chosen.log_level)
        sys.setswitchinterval(SWITCH_SECONDS)
        self.service = Service(chosen, load_deployment(chosen))
        ready = threading.Event()
        self.service.when_ready = ready.set
        self.service.start()
        while not ready.wait(_LOOK):  # Ray sends requests as soon as this ends
            if self.service.settled.is_set():
                self.service.check_ready()  # raises what the self-test found

    def __serve_build_asgi_app__(self) -> ASGIApp:
        """The application that Ray calls."""
        answers = application(self.service)

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            scope.setdefault("state", {})["connection"] = _RayConnection(send)
            await answers(scope, receive, send)

        return answer

    def check_health(self) -> None:
        """Raise when Ray had better replace this replica."""
        self.service.check_ready()

    def record_autoscaling_stats(self) -> dict[str, float]:
        """What `scaling` decides by."""
        return {QUEUE_SECONDS: self.service.running.scheduler.backlog}


class _RayConnection:
    """In place of a connection of ours: Ray bounds what callers send, and cancels who leaves."""

    is_lost = False

    def __init__(self, send: Send) -> None:
        self.request: RequestContext | None = None
        self._send = send

    def count(self) -> None:
        """Nothing of the connection is kept here."""

    def take_body(self) -> bytes | None:
        """The body comes in parts."""
        return None

    async def answer(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        """Send a whole answer."""
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})
