"""What is noted of each request, for its log line and the metrics."""

from __future__ import annotations

import logging
import random
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from service.logs import request_line, requests

if TYPE_CHECKING:
    from service.metrics import Metrics

CLIENT_LEFT = 499  # never sent; what the log and the metrics call a caller who hung up
UNMATCHED = "unmatched"  # the route of what no route takes

_SAFE_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")


@dataclass(slots=True)
class RequestRecord:
    """One request."""

    id: str
    started: float
    texts: int | None = None
    tokens: int | None = None
    held_bytes: int = 0
    tokenize: float = 0.0  # seconds, like the two that follow
    queue: float = 0.0
    infer: float = 0.0

    def took(self, tokenize: float, queue: float, infer: float) -> None:
        """Note what an answer took."""
        self.tokenize += tokenize
        self.queue += queue
        self.infer += infer

    def timings_ms(self) -> dict[str, float]:
        """For the log, if there was an answer."""
        if self.texts is None:
            return {}
        named = {"tokenize_ms": self.tokenize, "queue_ms": self.queue, "infer_ms": self.infer}
        return {name: round(seconds * 1000, 3) for name, seconds in named.items()}


def begin_record(given_id: str) -> RequestRecord:
    """A record that begins now, under the caller's id if it is one."""
    safe = given_id and _SAFE_ID.fullmatch(given_id)
    return RequestRecord(given_id if safe else f"{random.getrandbits(64):016x}", time.monotonic())


def note_end(
    metrics: Metrics, record: RequestRecord, method: str, route: str, status: int, *, log: bool
) -> None:
    """Count a request that has ended, and write its line."""
    seconds = time.monotonic() - record.started
    metrics.count_request(route, status, seconds)
    if status == 429:
        metrics.rejected.inc()
    elif status == CLIENT_LEFT:
        metrics.disconnected.inc()
    if log and requests.isEnabledFor(logging.INFO):
        request_line(
            id=record.id,
            method=method,
            route=route,
            status=status,
            texts=record.texts,
            tokens=record.tokens,
            **record.timings_ms(),
            total_ms=round(seconds * 1000, 3),
        )
