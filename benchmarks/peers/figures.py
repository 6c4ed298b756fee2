"""The figures of a comparison, out of the store: medians over rounds, with their range."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.load.samples import Sample
from benchmarks.peers.recording import SWEEP, percentile_of_all, to_samples
from benchmarks.peers.workload import SHORT
from benchmarks.records import LoadTest, Run
from benchmarks.store import Store
from models.errors import ConfigError

#: column: whether more is better
COLUMNS = {
    "documents/s": True,
    "p50": False,
    "p99": False,
    "p99 of short": False,
    "memory": False,
    "failed": False,
}


@dataclass(frozen=True)
class Cell:
    """A figure's values, one a round. `middle` is their median; infinite is «no answer»."""

    values: tuple[float, ...]

    @property
    def middle(self) -> float:
        """The median over the rounds."""
        return median(self.values)


@dataclass(frozen=True)
class Row:
    """One server under one load."""

    server: str
    tests: tuple[LoadTest, ...]
    cells: dict[str, Cell]

    @property
    def failure(self) -> str:
        """Why it was not measured, if it was not."""
        return next((test.note for test in self.tests if not test.requests), "")


class Results:
    """What a store holds of one comparison."""

    def __init__(self, store: Store, run: Run) -> None:
        self.run = run
        self._store = store
        self._tests = [
            (number, test)
            for number, test in store.load().load_tests
            if test.run == run.run and test.sweep == SWEEP
        ]
        if not self._tests:
            raise ConfigError(f"{store.path} holds no results of {run.run}")

    @property
    def any_test(self) -> LoadTest:
        """One of the records, for what all have in common."""
        return self._tests[0][1]

    def of(self, server: str) -> list[LoadTest]:
        """A server's records, in the order in which they were made."""
        return [test for _, test in self._tests if test.server == server]

    def start(self, server: str) -> Cell | None:
        """Seconds to a server's first answer, one for each of its starts."""
        tests = [test for test in self.of(server) if test.requests]
        seconds = sorted({float(test.settings["start_seconds"]) for test in tests})
        return Cell(tuple(seconds)) if seconds else None

    def row(self, server: str, load: str) -> Row | None:
        """A server under a load, or None when it took no part."""
        numbered = [
            (number, test)
            for number, test in self._tests
            if test.server == server and test.scenario == load
        ]
        if not numbered:
            return None
        tests = tuple(test for _, test in numbered)
        measured = [(self._samples(number), test) for number, test in numbered if test.requests]
        cells = {}
        for column, figure in _FIGURES.items():
            values = tuple(figure(samples, test) for samples, test in measured)
            if values and not any(math.isnan(value) for value in values):
                cells[column] = Cell(values)
        return Row(server, tests, cells)

    def _samples(self, number: int) -> list[Sample]:
        raw = self._store.requests(number)
        return to_samples(raw) if raw is not None else []


def find_run(store: Store, name: str | None) -> Run:
    """The run named, or the last comparison that finished."""
    runs = store.load().runs
    if name is not None:
        if name not in runs:
            raise ConfigError(f"{store.path} holds no run {name!r}")
        return runs[name]
    ended = [run for run in runs.values() if run.run.startswith("peers-") and run.finished]
    if not ended:
        raise ConfigError(f"{store.path} holds no finished comparison; run `make peers`")
    return ended[-1]


def _share(share: float, below: int | None = None) -> Callable[[Sequence[Sample], LoadTest], float]:
    def figure(samples: Sequence[Sample], test: LoadTest) -> float:
        if below is None:
            return percentile_of_all(samples, share)
        if test.scenario == "fixed":
            return math.nan
        return percentile_of_all([each for each in samples if each.tokens < below], share)

    return figure


_FIGURES: dict[str, Callable[[Sequence[Sample], LoadTest], float]] = {
    "documents/s": lambda _, test: test.answered_per_second,
    "p50": _share(50),
    "p99": _share(99),
    "p99 of short": _share(99, SHORT),
    "memory": lambda _, test: float(test.service_memory_bytes or math.nan),
    "failed": lambda _, test: sum(test.errors.values()) / test.requests,
}
