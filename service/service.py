"""The service behind the routes: its deployment, its life cycle, and what its requests hold."""

from __future__ import annotations

import asyncio
import gc
import math
import threading
import time
from collections.abc import Callable
from typing import Protocol

from service.errors import Draining, NotReady, Overloaded, ServiceError
from service.http.offload import Offload
from service.logs import service as log
from service.metrics import Metrics
from service.pipeline import Pipeline
from service.settings import Settings
from service.startup.deployment import Deployment, Running
from service.startup.selftest import TOLERANCE

LARGE = 1 << 18  # bytes of a request: what it was read into may be ten times as large
_COLLECT_SECONDS = 1.0  # after a large request


class Holder(Protocol):
    """What keeps bytes of a caller: a request, or a line of a stream."""

    held_bytes: int


class Service:
    """What all requests share. Only the event loop changes it once the workers run."""

    def __init__(self, settings: Settings, deployment: Deployment) -> None:
        self.settings = settings
        self.deployment = deployment
        self.metrics = Metrics()
        self.metrics.show_engine(deployment.engine.info)
        self.keys = [key.encode() for key in settings.api_keys]
        self.most_connections: float = math.inf
        self.in_flight = 0  # requests that are being answered
        self.held_bytes = 0  # by requests and connections
        self.when_ready: Callable[[], None] = lambda: None
        self.closed = False
        self.has_begun = threading.Event()  # the application has had time for a first answer
        self.settled = threading.Event()  # nothing of the start goes on any more
        self.parsing = Offload()
        self.pipeline: Pipeline | None = None  # once the self-test has succeeded
        self._collects = False
        self._running: Running | None = None
        self._failure: BaseException | None = None
        self.is_leaving = False  # a signal to end has come
        self._drain_from = math.inf  # when nothing new is taken any more
        self._starter: threading.Thread | None = None

    def start(self) -> None:
        """Begin the self-test in the background; the service is ready when it has succeeded.

        Once: the application starts what nobody has started before.
        """
        if self._starter is not None:
            return
        self._starter = threading.Thread(target=self._start, name="self-test", daemon=True)
        self._starter.start()

    def _start(self) -> None:
        try:
            self._become_ready()
        finally:
            self.settled.set()

    def _become_ready(self) -> None:
        try:
            running = self.deployment.start(self.settings, self.metrics.observe_run)
        except BaseException as error:  # the service then never becomes ready, and says why
            self._failure = error
            log.exception("the self-test failed")
            return
        found = running.self_test
        if not found.batching:
            log.warning(
                "answers depend on the batch by %.1e, more than %.0e: every document runs alone",
                found.largest_difference,
                TOLERANCE,
            )
        log.info(
            "ready: the canary's answer varies by at most %.1e; self-test took %.2f s",
            found.largest_difference,
            found.seconds,
        )
        running.pipeline.observe_wasted = self.metrics.wasted_tokens.inc
        self._running, self.pipeline = running, running.pipeline
        self.when_ready()
        self.has_begun.wait()
        try:
            running.speed_up()
        except Exception as error:  # an engine's fault, of whatever kind: all works without it
            log.warning("it answers, but could not be made as fast as it might be: %s", error)

    @property
    def running(self) -> Running:
        """The running deployment, or NotReady."""
        if self._failure is not None:
            raise NotReady(f"the self-test failed: {self._failure}", retry_after=60)
        if self._running is None:
            raise NotReady("the model is being checked")
        return self._running

    def sample(self) -> None:
        """Bring the metrics that are read off, not counted, up to date."""
        running = self._running
        try:
            self.check_ready()
        except ServiceError:
            self.metrics.ready.set(0)
        else:
            self.metrics.ready.set(1)
        self.metrics.in_flight.set(self.in_flight)
        self.metrics.held_bytes.set(self.held_bytes)
        if running is not None:
            self.metrics.queue_depth.set(running.scheduler.depth)
            self.metrics.queue_work.set(running.scheduler.backlog)

    def check_ready(self) -> None:
        """Raise what keeps callers from sending more, from the first signal to end on."""
        if self.is_leaving:
            raise self._draining()
        if not self.running.scheduler.healthy():
            raise NotReady("a worker has died or the last run failed")

    def check_draining(self) -> None:
        """Raise when nothing new is taken any more."""
        if time.monotonic() >= self._drain_from:
            raise self._draining()

    def drain(self) -> None:
        """Take no new work, once balancers have had the time to notice."""
        self.is_leaving = True
        self._drain_from = time.monotonic() + self.settings.drain_delay_seconds

    @property
    def drained(self) -> bool:
        """Whether everything accepted is answered, or the time for it is over."""
        now = time.monotonic()
        if now < self._drain_from:
            return False
        return self.in_flight == 0 or now >= self._drain_from + self.settings.drain_seconds

    def _draining(self) -> Draining:
        left = self._drain_from + self.settings.drain_seconds - time.monotonic()
        return Draining(retry_after=max(0.0, left))

    def hold(self, holder: Holder, size: int) -> None:
        """Note that so many more bytes are kept; refuse when it would be too many in all."""
        if self.held_bytes + size > self.settings.max_held_bytes:
            raise Overloaded(retry_after=1.0)
        self.held_bytes += size
        holder.held_bytes += size

    def release(self, holder: Holder) -> None:
        """Note that nothing of it is kept any more."""
        self.held_bytes -= holder.held_bytes
        if holder.held_bytes >= LARGE and not self._collects:
            self._collects = True
            asyncio.get_running_loop().call_later(_COLLECT_SECONDS, self._collect)
        holder.held_bytes = 0

    def _collect(self) -> None:
        """Free what refers to itself: the collector counts objects, and a large one is one."""
        self._collects = False
        gc.collect()

    def close(self) -> None:
        """End the workers; a run that does not end within a second is left behind."""
        self.has_begun.set()
        self.parsing.close()
        if self._starter is not None:
            self._starter.join()
        if self._running is None:
            self.deployment.engine.close()
            self.closed = True
        else:
            self.closed = self._running.close(timeout=1.0)
