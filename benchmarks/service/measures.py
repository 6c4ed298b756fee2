"""The measurements of the service. Each stores raw samples; the page computes figures from them.

What is compared takes turns, round by round, so that noise on the machine affects all alike.
"""

from __future__ import annotations

import functools
import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.documents.lengths import LogNormal
from benchmarks.documents.making import Document, count_with, write_to_length
from benchmarks.environment import now
from benchmarks.load.arrivals import poisson, until
from benchmarks.load.loops import post, run, send_once
from benchmarks.load.sending import Load, every_document_once, send, to_record
from benchmarks.load.summary import About
from benchmarks.quiet import Taken, undisturbed
from benchmarks.records import Figure, LoadTest
from benchmarks.servers.bare_engine import Bare, measure_bare
from benchmarks.servers.bundle import ServedBundle
from benchmarks.servers.memory import forget_peak, status_bytes
from benchmarks.servers.process import Running, measured_python, run_service
from benchmarks.store import Store

BARE, COLD_START, MEMORY = "bare engine", "cold start", "memory of the service"
CLIENTS, FEW_CLIENTS = 32, 16
FLOOD, CALM = 5.0, 0.3  # offered in `overload`, as multiples of the peak
_ALONE_SECONDS, _AFTER_SECONDS = 5.0, 10.0  # of calm load before and after the flood


@dataclass(frozen=True)
class Plan:
    """How much to measure.

    rounds     of `overhead`: bare engine and service take turns
    documents  of the mixed lengths; of equal ones a part
    floods     of `overload`, each of `seconds`
    starts     of `cold_start`
    lengths    tokens of the documents of `memory`
    """

    name: str
    rounds: int
    documents: int
    floods: int
    seconds: float
    starts: int
    lengths: tuple[int, ...]


QUICK = Plan("quick", 2, 60, 1, 4, 2, (512, 4096))
FULL = Plan("full", 6, 1000, 3, 30, 8, (512, 2048, 4096, 8000, 8192, 16_384))


class Measurements:
    """Takes the measurements of one run and stores them."""

    def __init__(
        self, bundle: ServedBundle, plan: Plan, store: Store, run: str, say: Callable[[str], object]
    ) -> None:
        self.bundle = bundle
        self.plan = plan
        self._store = store
        self._run = run
        self._say = say

    def overhead(self) -> None:
        """Documents a second over HTTP, and of the graph alone with tokens ready, in turns."""
        count = self.plan.documents
        source = random.Random(1)  # noqa: S311 - documents, not secrets
        cases = {
            "512": [512] * (count // 2),
            "4096": [min(4096, self.bundle.longest)] * (count // 10),
            "mixed": [LogNormal(high=self.bundle.longest).draw(source) for _ in range(count)],
        }
        with self._service() as running:
            for name, lengths in cases.items():
                load = every_document_once(
                    f"overhead {name}", self._documents(lengths), CLIENTS, 60.0
                )
                self._warm_up(running, load.documents)
                self._bare(load, 0)
                for number in range(1, self.plan.rounds + 1):
                    self._load(running, load, number)
                    self._bare(load, number)

    def overload(self) -> None:
        """Five times what it can do, on schedule; before and after that, peak and calm load."""
        source = random.Random(5)  # noqa: S311
        lengths = [LogNormal(high=self.bundle.longest).draw(source) for _ in range(400)]
        documents = self._documents(lengths)
        peak = every_document_once("overload: peak before", documents, FEW_CLIENTS)
        again = every_document_once("overload: peak after", documents, FEW_CLIENTS)
        for number in range(1, self.plan.floods + 1):
            with self._service() as running:
                self._warm_up(running, documents)
                rate = self._load(running, peak, number, tries=1).answered_per_second
                offered = (
                    ("overload: calm before", CALM, _ALONE_SECONDS),
                    ("overload: flood", FLOOD, self.plan.seconds),
                    ("overload: calm after", CALM, _AFTER_SECONDS),
                )
                for name, share, seconds in offered:
                    load = on_schedule(name, documents, share * rate, seconds, number)
                    self._load(running, load, number, tries=1)
                self._load(running, again, number, tries=1)

    def cold_start(self) -> None:
        """Seconds from process start to the first 200 on /readyz."""
        seconds = []
        for _ in range(self.plan.starts):
            with self._service() as running:
                seconds.append(round(running.start_seconds, 4))
        self._figure(COLD_START, "seconds", seconds)

    def memory(self) -> None:
        """Bytes before, predicted, at the peak and some seconds after one document of a length."""
        with self._service() as running:
            self._warm_up(running, self._documents([64] * 4))
            for length in self.plan.lengths:
                if length <= self.bundle.longest:
                    self._memory_of(running, length)

    def _memory_of(self, running: Running, length: int) -> None:
        (document,) = self._documents([length])
        estimate = run(send_once(running.port, post("/estimate", {"input": document.text})))
        predicted = json.loads(estimate.body)["estimates"][0]["memory_bytes"]
        forget_peak(running.pid)
        before = status_bytes("VmRSS", running.pid)
        reply = run(send_once(running.port, _classify(document.text), patience=120.0))
        if reply.status != 200:
            raise RuntimeError(f"a document of {length} tokens got {reply.status or reply.reason}")
        peak = status_bytes("VmHWM", running.pid)
        time.sleep(_ALONE_SECONDS)
        after = status_bytes("VmRSS", running.pid)
        columns = {"tokens": document.tokens, "after_seconds": _ALONE_SECONDS,
                   "columns": ["before", "predicted", "peak", "after"]}  # fmt: skip
        self._figure(MEMORY, "bytes", [before, predicted, peak, after], columns)

    def _service(self) -> Any:
        return run_service({"bundle": self.bundle.path}, measured_python())

    def _documents(self, lengths: Sequence[int]) -> list[Document]:
        return write_to_length(lengths, count_with(self.bundle.path), seed=2)

    def _warm_up(self, running: Running, documents: Sequence[Document]) -> None:
        load = every_document_once("warm-up", documents[:40], 4)
        send(running, load, load.requests(_classify))

    def _load(self, running: Running, load: Load, number: int, tries: int = 3) -> LoadTest:
        measure = functools.partial(send, running, load, load.requests(_classify))
        taken = undisturbed(measure, tries)
        about = About(
            run=self._run,
            sweep=self._run,
            scenario=load.name,
            info=self.bundle.info,
            settings=self._noted(taken, number) | {"cores": taken.value.monitor.cores},
        )
        record, raw = to_record(load, taken.value, about)
        self._store.append(record, raw)
        self._say(f"  {load.name}, round {number}: {record.answered_per_second:.1f} documents/s")
        return record

    def _bare(self, load: Load, number: int) -> None:
        """The graph alone, each document by itself and short ones in batches."""
        for batched in (False, True):
            measure = functools.partial(
                measure_bare, self.bundle.path, {load.name: load.documents}, tokenized=True,
                batched=batched,
            )  # fmt: skip
            taken = undisturbed(measure, 3)
            bare: Bare = taken.value[load.name]
            conditions = {"load": load.name, "batched": batched, "seconds": bare.seconds}
            self._figure(BARE, "seconds of each document", bare.each,
                         conditions | self._noted(taken, number))  # fmt: skip

    def _noted(self, taken: Taken[Any], number: int) -> dict[str, Any]:
        return {
            "round": number,
            "plan": self.plan.name,
            "stolen": round(taken.stolen, 4),
            "tries": taken.tries,
        }

    def _figure(
        self,
        name: str,
        unit: str,
        values: Sequence[float],
        conditions: dict[str, Any] | None = None,
    ) -> None:
        figure = Figure(
            run=self._run, created=now(), name=name, subject=self.bundle.name, unit=unit,
            values=tuple(values), conditions={"plan": self.plan.name} | (conditions or {}),
        )  # fmt: skip
        self._store.append(figure)


MEASURES: dict[str, Callable[[Measurements], None]] = {
    "overhead": Measurements.overhead,
    "overload": Measurements.overload,
    "cold_start": Measurements.cold_start,
    "memory": Measurements.memory,
}


def on_schedule(
    name: str, documents: Sequence[Document], rate: float, seconds: float, seed: int
) -> Load:
    """Poisson arrivals of documents drawn at random."""
    source = random.Random(f"{name} {seed}")  # noqa: S311
    dues = tuple(until(seconds, poisson(rate, source)))
    order = tuple(source.choices(range(len(documents)), k=len(dues)))
    return Load(name, "open", tuple(documents), order, dues, rate, seconds)


def _classify(text: str) -> bytes:
    return post("/classify", {"input": text})
