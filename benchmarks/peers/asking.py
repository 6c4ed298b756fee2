"""A load's requests in the form that a server takes, and the warm-up before it."""

from __future__ import annotations

import asyncio

from benchmarks.load.loops import Asked, closed_loop
from benchmarks.peers.process import Running
from benchmarks.peers.registry import Server
from benchmarks.peers.workload import Load, Workload

_WARM_UP = 24  # documents
_CLIENTS = 8


def requests_of(server: Server, load: Load) -> list[Asked]:
    """The requests of a load, in order."""
    whole = [server.request(document.text) for document in load.documents]
    return [Asked(index, load.documents[index].tokens, whole[index]) for index in load.order]


def warm_up(running: Running, workload: Workload) -> None:
    """Some documents of all lengths and the longest twice, several at once."""
    asked = requests_of(running.server, workload.load("mixed", 0, {}))
    longest = max(asked, key=lambda each: each.tokens)
    some = [longest, longest, *asked[-_WARM_UP:]]
    asyncio.run(closed_loop(running.port, some, _CLIENTS, 4 * workload.plan.patience))
