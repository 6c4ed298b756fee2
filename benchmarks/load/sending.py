"""A load on a running server, from its documents to its record."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from benchmarks.documents.making import Document
from benchmarks.load.loops import Exchange, Request, closed_loop, open_loop, run
from benchmarks.load.samples import Usage
from benchmarks.load.summary import About, Outcome, summarize
from benchmarks.records import LoadTest, Requests
from benchmarks.servers.monitor import Monitor
from benchmarks.servers.process import Running


@dataclass(frozen=True)
class Load:
    """A load. `order` gives the document of each request.

    A closed loop of `clients` ends with its documents; an open one has a time due for each
    request, lasts `seconds`, and what is answered after that does not count as throughput.
    """

    name: str
    model: Literal["open", "closed"]
    documents: tuple[Document, ...]
    order: tuple[int, ...]
    dues: tuple[float, ...] = ()
    rate: float | None = None
    seconds: float | None = None
    clients: int = 32
    patience: float = 60.0

    def requests(self, make: Callable[[str], bytes]) -> list[Request]:
        """The requests in order; `make` turns a text into a request's bytes."""
        made = [make(document.text) for document in self.documents]
        return [Request(made[i], i, self.documents[i].tokens) for i in self.order]


@dataclass(frozen=True)
class Sent:
    """What was observed of a load: answers, the server's processes, our own processor time."""

    exchanges: list[Exchange]
    monitor: Monitor
    cpu_seconds: float


def every_document_once(
    name: str, documents: Sequence[Document], clients: int, patience: float = 60.0
) -> Load:
    """A closed loop over all documents in their order."""
    return Load(
        name, "closed", tuple(documents), tuple(range(len(documents))), clients=clients,
        patience=patience,
    )  # fmt: skip


def send(running: Running, load: Load, requests: Sequence[Request]) -> Sent:
    """Send a load to its end."""
    before = time.process_time()
    with Monitor(running.pid) as monitor:
        if load.model == "closed":
            loop = closed_loop(running.port, requests, load.clients, load.patience)
        else:
            loop = open_loop(running.port, requests, load.dues, load.patience)
        exchanges = run(loop)
    return Sent(exchanges, monitor, time.process_time() - before)


def to_record(
    load: Load, sent: Sent | None, about: About, *, memory_after: int | None = None, note: str = ""
) -> tuple[LoadTest, Requests]:
    """The record and raw requests of a load; of one that could not be sent, with the reason."""
    samples = sorted((each.sample for each in sent.exchanges), key=lambda s: s.due) if sent else []
    ends = [each.due + each.seconds for each in samples]
    seconds = load.seconds or max(ends, default=0.0) + 1e-6
    outcome = Outcome(
        samples=samples,
        seconds=seconds,
        model=load.model,
        rate=load.rate,
        users=load.clients,
        memory=sent.monitor.held if sent else (),
        memory_idle=sent.monitor.idle if sent else None,
        memory_peak=sent.monitor.most if sent else None,
        memory_after=memory_after,
        usages=[Usage(sent.cpu_seconds, seconds, ())] if sent else (),
        note=note,
    )
    return summarize(outcome, about)
