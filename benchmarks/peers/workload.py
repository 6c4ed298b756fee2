"""The four loads: their documents, and when each request is due.

fixed    every document has 512 tokens; a closed loop at saturation
mixed    log-normal lengths from 32 to 16,384; a closed loop at saturation, every document once
behind   5% have 16,384 tokens, the others fewer than 512; Poisson arrivals at 60% of the limit
bursts   the lengths of `mixed`; all that arrives in four seconds arrives in the first 0.8
"""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from benchmarks.documents.lengths import LogNormal
from benchmarks.documents.making import Document, count_with, write_to_length
from benchmarks.load.arrivals import bursts, poisson, until
from benchmarks.load.sending import Load, every_document_once

SHORT = 512  # tokens: a document below is called short
LONG = 16_384
WARM_UP, WARM_UP_CLIENTS = 24, 8  # documents, besides the longest twice
SHARE_OF_LIMIT = {"behind": 0.6, "bursts": 0.5}
_POOL = 100  # documents of `behind`, sent again and again


@dataclass(frozen=True)
class Plan:
    """How much to measure: `quick` shows that all works, `full` gives the figures.

    patience   seconds that a client waits for an answer; in closed loops four times as many
    alone      documents that are also sent one at a time
    rest       seconds between the warm-up and the first load
    settle     seconds from the last answer of `behind` until memory is read again
    """

    name: str
    rounds: int
    documents: int
    behind_seconds: float
    bursts_seconds: float
    clients: int = 32
    patience: float = 15.0
    alone: int = 40
    rest: float = 3.0
    settle: float = 5.0

    def values(self) -> dict[str, Any]:
        """For the record."""
        return asdict(self)


QUICK = Plan("quick", 1, 60, behind_seconds=3, bursts_seconds=4, alone=8, rest=1, settle=1)
SETTINGS = Plan("settings", 1, 120, behind_seconds=6, bursts_seconds=4, alone=8, rest=1, settle=0)
FULL = Plan("full", 3, 600, behind_seconds=15, bursts_seconds=8)


#: name of a load: what it is, for people
TITLES = {
    "fixed": "every document has 512 tokens",
    "mixed": "log-normal lengths from 32 to 16,384 tokens",
    "behind": "5% of 16,384 tokens among short ones",
    "bursts": "bursts",
}
LETTERS = dict(zip(TITLES, "abcd", strict=True))


class Workload:
    """The documents of a comparison, the same for all servers and rounds."""

    def __init__(self, bundle: Path, plan: Plan, longest: int) -> None:
        self.plan = plan
        count = count_with(bundle)
        source = random.Random(7)  # noqa: S311 - documents, not secrets
        long = min(LONG, longest)
        mixed = [LogNormal(high=long).draw(source) for _ in range(plan.documents)]
        pool = [min(LogNormal().draw(source), SHORT - 1) for _ in range(_POOL)]
        pool[::20] = [long] * len(pool[::20])
        self._documents = {
            "fixed": tuple(write_to_length([512] * plan.documents, count, seed=1)),
            "mixed": tuple(write_to_length(mixed, count, seed=1000)),
            "behind": tuple(write_to_length(pool, count, seed=2000)),
        }
        self._documents["bursts"] = self._documents["mixed"]

    @property
    def warm_up(self) -> Load:
        """Some documents of all lengths and the longest twice, several at once."""
        mixed = self._documents["mixed"]
        longest = max(mixed, key=lambda document: document.tokens)
        some = [longest, longest, *mixed[-WARM_UP:]]
        return every_document_once("warm-up", some, WARM_UP_CLIENTS, 4 * self.plan.patience)

    @property
    def alone(self) -> Load:
        """Documents of `mixed` of all lengths, evenly spread, one at a time."""
        mixed = self._documents["mixed"]
        by_length = sorted(range(len(mixed)), key=lambda index: mixed[index].tokens)
        some = tuple(by_length[:: -max(1, len(by_length) // self.plan.alone)])
        return Load("alone", "closed", mixed, some, clients=1, patience=4 * self.plan.patience)

    def documents(self, name: str) -> tuple[Document, ...]:
        """The documents of a load."""
        return self._documents[name]

    def load(self, name: str, number: int, limits: dict[str, float]) -> Load:
        """A load of one round; `limits` are documents a second without HTTP, by load."""
        documents = self._documents[name]
        source = random.Random(f"{name} {number}")  # noqa: S311 - a load, not a secret
        plan = self.plan
        if name in ("fixed", "mixed"):
            return every_document_once(name, documents, plan.clients, 4 * plan.patience)
        limit = limits["mixed" if name == "bursts" else name]
        rate = SHARE_OF_LIMIT[name] * limit
        if name == "behind":
            seconds, arrivals = plan.behind_seconds, poisson(rate, source)
        else:
            seconds = plan.bursts_seconds
            arrivals = bursts(rate, source, every=4.0, share=0.2, peak=5.0)
        dues = tuple(until(seconds, arrivals))
        shuffled = source.sample(range(len(documents)), len(documents))
        order = tuple(islice(cycle(shuffled), len(dues)))
        return Load(
            name, "open", documents, order, dues, rate, seconds, plan.clients, plan.patience
        )
