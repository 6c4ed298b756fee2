"""One process's part of a load: sends requests, notes what became of them. Runs under gevent."""

from __future__ import annotations

import errno
import random
import socket
import time
from collections.abc import Callable

import gevent
from gevent.pool import Group
from geventhttpclient.client import HTTPClient
from geventhttpclient.response import HTTPConnectionClosed, HTTPParseError

from benchmarks.load.samples import NO_SOCKETS, REFUSED_CONNECTION, TIMED_OUT, Sample, Usage
from loadtests.plan import Plan
from loadtests.requests import Prepared, Requests, check_answer

#: Told of each sample, with the path and the size of the answer.
Listener = Callable[[Sample, str, int], None]

_MOST_CONNECTIONS = 100_000
_CONNECT_SECONDS = 5.0
_LOST_PAUSE = 0.2  # a caller of the closed model who gets no connection waits before the next
_TICK = 0.05


class Sender:
    """A plan under way in this process. Its clock counts from the end of the warm-up."""

    def __init__(self, plan: Plan, index: int, listener: Listener) -> None:
        self.plan = plan
        self.in_flight = 0
        self.stopped = False
        self.ended = False
        self.done: list[Sample] = []
        self._listener = listener
        self._measured = 0
        self._began = time.perf_counter() + plan.warm_up
        self._random = random.Random(f"{plan.seed}-{index}")  # noqa: S311 - a load, no secret
        self._requests = Requests(plan, self._random)
        self._client = HTTPClient.from_url(
            plan.address,
            concurrency=_MOST_CONNECTIONS,
            connection_timeout=min(_CONNECT_SECONDS, plan.timeout),
            network_timeout=plan.timeout,
        )
        self._headers = {"X-API-Key": plan.key} if plan.key else {}
        self._group = Group()
        self._overslept: list[float] = []
        self._cpu: float | None = None
        self._watch = gevent.spawn(self._watch_own_clock)

    @property
    def clock(self) -> float:
        """Seconds since the warm-up's end; negative before."""
        return time.perf_counter() - self._began

    @property
    def over(self) -> bool:
        """Whether nothing more is to be sent."""
        if self.stopped:
            return True
        if self.plan.seconds is None or self.clock < self.plan.seconds:
            return False
        enough = self._measured >= self.plan.least / max(1, self.plan.workers)
        return enough or self.clock >= self.plan.most_seconds

    @property
    def finished(self) -> bool:
        """Whether it is over and every request has come back."""
        return self.over and self.in_flight == 0

    def think(self) -> None:
        """Wait as a caller of the closed model does between two requests."""
        if self.plan.think:
            gevent.sleep(self._random.expovariate(1 / self.plan.think))

    def send_now(self, kind: str) -> None:
        """Send one request of the closed model and wait for its answer."""
        sample = self._send(self._requests.of_kind(kind), None)
        if sample.status == 0:
            gevent.sleep(_LOST_PAUSE)

    def send_when_due(self, due: float) -> None:
        """Wait until a request is due, then let it go and do not wait for its answer."""
        request = self._requests.any_kind()
        gevent.sleep(max(0.0, due - self.clock))
        if not self.over:
            self.in_flight += 1  # from now on, though its own thread may start a moment later
            self._group.spawn(self._send_counted, request, due)

    def end(self) -> None:
        """Let go of everything."""
        self.stopped = self.ended = True
        self._watch.kill()
        self._group.kill(block=False)
        self._client.close()

    def usage(self) -> Usage:
        """What this process needed since the warm-up's end."""
        used = 0.0 if self._cpu is None else time.process_time() - self._cpu
        return Usage(used, max(1e-9, self.clock), tuple(self._overslept))

    def _send_counted(self, request: Prepared, due: float) -> None:
        self.in_flight -= 1
        self._send(request, due)

    def _send(self, request: Prepared, due: float | None) -> Sample:
        self.in_flight += 1
        started = self.clock
        due = started if due is None else due
        status, error, size = self._exchange(request)
        ended = self.clock
        sample = Sample(
            round(due, 6), round(max(0.0, ended - due), 6), round(max(0.0, started - due), 6),
            request.tokens, request.documents, status, request.kind, error,
        )  # fmt: skip
        self.in_flight -= 1
        self._measured += due >= 0
        self.done.append(sample)
        self._listener(sample, request.path, size)
        return sample

    def _exchange(self, request: Prepared) -> tuple[int, str, int]:
        """Send and read; the status (0: no answer), what went wrong, and the answer's size."""
        headers = self._headers | {"Content-Type": request.media_type}
        try:
            response = self._client.request("POST", request.path, request.body, headers)
            content = bytes(response.read())
            status, error = check_answer(request, response.status_code, content)
        except (OSError, HTTPParseError) as failure:
            return 0, _name_failure(failure), 0
        return status, error, len(content)

    def _watch_own_clock(self) -> None:
        """See by how much a short sleep is too long: that is how busy this process is."""
        gevent.sleep(max(0.0, -self.clock))
        self._cpu = time.process_time()
        while not self.over:
            before = time.perf_counter()
            gevent.sleep(_TICK)
            self._overslept.append(round(max(0.0, time.perf_counter() - before - _TICK), 6))


#: What keeps an answer from coming, in a few words that are always the same.
_FAILURES: tuple[tuple[tuple[type[Exception], ...], str], ...] = (
    ((TimeoutError,), TIMED_OUT),
    ((ConnectionRefusedError,), REFUSED_CONNECTION),
    ((HTTPConnectionClosed, ConnectionError), "connection closed"),
    ((socket.gaierror,), "address not found"),
    ((HTTPParseError,), "not HTTP"),
)


def _name_failure(failure: Exception) -> str:
    if isinstance(failure, OSError) and failure.errno in (errno.EMFILE, errno.EADDRNOTAVAIL):
        return NO_SOCKETS
    for kinds, words in _FAILURES:
        if isinstance(failure, kinds):
            return words
    return f"no connection: {type(failure).__name__}"
