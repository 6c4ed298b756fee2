"""The four loads: their documents, and when each request is due.

fixed    every document has 512 tokens; a closed loop at saturation
mixed    log-normal lengths from 32 to 16,384; a closed loop at saturation, every document once
behind   5% have 16,384 tokens, the others fewer than 512; Poisson arrivals at 60% of the limit
bursts   the lengths of `mixed`; all that arrives in four seconds arrives in the first 0.8
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Literal

from tokenizers import Tokenizer

from benchmarks.documents.lengths import LogNormal
from benchmarks.documents.making import Document, write_to_length
from benchmarks.load.arrivals import bursts, poisson, until

SHORT = 512  # tokens: a document below is called short
LONG = 16_384
SHARE_OF_LIMIT = {"behind": 0.6, "bursts": 0.5}
_POOL = 100  # documents of `behind`, sent again and again


@dataclass(frozen=True)
class Plan:
    """How much to measure: `quick` shows that all works, `full` gives the figures."""

    name: str
    rounds: int
    documents: int
    behind_seconds: float
    bursts_seconds: float
    clients: int = 32
    patience: float = 15.0
    alone: int = 40
    rest: float = 3.0

    def values(self) -> dict[str, Any]:
        """For the record."""
        return asdict(self)


QUICK = Plan("quick", rounds=1, documents=100, behind_seconds=5, bursts_seconds=4, alone=12)
TUNING = Plan("tuning", rounds=1, documents=160, behind_seconds=0, bursts_seconds=0)
FULL = Plan("full", rounds=5, documents=600, behind_seconds=15, bursts_seconds=8)


@dataclass(frozen=True)
class Load:
    """One load. `order` names the document of each request.

    A closed loop ends with its documents and has no `dues`; an open one lasts `seconds`, and what
    is answered after that does not count as throughput.
    """

    name: str
    model: Literal["open", "closed"]
    documents: tuple[Document, ...]
    order: tuple[int, ...]
    dues: tuple[float, ...] = ()
    rate: float | None = None
    seconds: float | None = None


#: name of a load: what it is, for people
TITLES = {
    "fixed": "every document has 512 tokens",
    "mixed": "log-normal lengths from 32 to 16,384 tokens",
    "behind": "5% of 16,384 tokens among short ones",
    "bursts": "bursts",
}


class Workload:
    """The documents of a comparison, the same for all servers and rounds."""

    def __init__(self, bundle: Path, plan: Plan, longest: int) -> None:
        self.plan = plan
        tokenizer = Tokenizer.from_file(str(bundle / "tokenizer.json"))
        tokenizer.no_truncation()

        def count(texts: Sequence[str]) -> list[int]:
            encodings = tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
            return [len(encoding.ids) for encoding in encodings]

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

    def documents(self, name: str) -> tuple[Document, ...]:
        """The documents of a load."""
        return self._documents[name]

    def load(self, name: str, number: int, limits: dict[str, float]) -> Load:
        """A load of one round; `limits` are documents a second without HTTP, by load."""
        documents = self._documents[name]
        source = random.Random(f"{name} {number}")  # noqa: S311 - a load, not a secret
        if name in ("fixed", "mixed"):
            return Load(name, "closed", documents, tuple(range(len(documents))))
        limit = limits["mixed" if name == "bursts" else name]
        rate = SHARE_OF_LIMIT[name] * limit
        if name == "behind":
            seconds, arrivals = self.plan.behind_seconds, poisson(rate, source)
        else:
            seconds = self.plan.bursts_seconds
            arrivals = bursts(rate, source, every=4.0, share=0.2, peak=5.0)
        dues = tuple(until(seconds, arrivals))
        shuffled = source.sample(range(len(documents)), len(documents))
        order = tuple(islice(cycle(shuffled), len(dues)))
        return Load(name, "open", documents, order, dues, rate, seconds)

    def sample_alone(self) -> list[int]:
        """Documents of `mixed` that are also asked for alone: of all lengths, evenly spread."""
        documents = self._documents["mixed"]
        by_length = sorted(range(len(documents)), key=lambda index: documents[index].tokens)
        step = max(1, len(by_length) // self.plan.alone)
        return by_length[::-step]
