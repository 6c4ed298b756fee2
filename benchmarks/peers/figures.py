"""The figures of a comparison, out of the store: medians over rounds, with their range."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.load.samples import Sample, percentile_of_all, to_samples
from benchmarks.peers import settings as choice
from benchmarks.peers.registry import Server, Settings
from benchmarks.peers.runner import LIMIT
from benchmarks.peers.workload import SHORT
from benchmarks.records import TRIALS, Figure, LoadTest, Run
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
#: The longest document of each bucket of lengths.
BUCKETS = (128, 512, 2048, 8192, 1 << 20)


@dataclass(frozen=True)
class Cell:
    """A figure's values, one a round. `middle` is their median; infinite: no answer."""

    values: tuple[float, ...]

    @property
    def middle(self) -> float:
        """The median over the rounds."""
        return median(self.values)


@dataclass(frozen=True)
class Row:
    """One server under one load; `waits` are p50 and p99 of waiting by own time, by bucket."""

    server: str
    tests: tuple[LoadTest, ...]
    cells: dict[str, Cell]
    waits: dict[int, tuple[float, float]]

    @property
    def failure(self) -> str:
        """Why it was not measured, if it was not."""
        return next((test.note for test in self.tests if not test.requests), "")

    @property
    def settings(self) -> Settings:
        """What it ran with."""
        found: Settings = self.tests[-1].settings["server"]
        return found


class Results:
    """What a store holds of one comparison."""

    def __init__(self, store: Store, run: Run) -> None:
        self.run = run
        self._store = store
        loaded = store.load()
        self._tests = list(
            {
                (test.server, test.scenario, test.settings["round"]): (number, test)
                for number, test in loaded.load_tests
                if test.run == run.run and test.sweep != TRIALS
            }.values()  # a server that did not start may have been tried again
        )
        if not self._tests:
            raise ConfigError(f"{store.path} holds no results of {run.run}")
        self.trials = [test for _, test in loaded.load_tests if test.sweep == TRIALS]
        self.limits = [
            figure
            for figure in loaded.figures
            if figure.run == run.run
            and figure.name == LIMIT
            and figure.conditions["plan"] == self.any_test.settings["plan"]["name"]
        ]

    @property
    def any_test(self) -> LoadTest:
        """One of the records, for what all have in common."""
        return self._tests[0][1]

    @property
    def tests(self) -> list[LoadTest]:
        """All records of servers that were measured."""
        return [test for _, test in self._tests if test.requests]

    @property
    def rounds(self) -> int:
        """How many rounds were measured."""
        return max(int(test.settings["round"]) for _, test in self._tests)

    def of(self, server: str) -> list[LoadTest]:
        """A server's records, in the order in which they were made."""
        return [test for _, test in self._tests if test.server == server]

    def limit(self, load: str) -> Cell | None:
        """Documents a second without a server, one value a round."""
        rates = [rate_of(figure) for figure in self._limits_of(load)]
        return Cell(tuple(rates)) if rates else None

    def _limits_of(self, load: str) -> list[Figure]:
        return [figure for figure in self.limits if figure.conditions["load"] == load]

    def own_seconds(self, load: str) -> dict[int, float]:
        """Seconds that a document takes on one core without a server, by its tokens."""
        found: dict[int, list[float]] = defaultdict(list)
        for figure in self._limits_of("mixed" if load == "bursts" else load):
            for tokens, seconds in zip(
                figure.conditions.get("tokens", ()), figure.values, strict=False
            ):
                found[tokens].append(seconds)
        return {tokens: median(values) for tokens, values in found.items()}

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
        everything = [sample for samples, _ in measured for sample in samples]
        return Row(server, tests, cells, waits_of(everything, self.own_seconds(load)))

    def trials_of(self, server: Server, load: str) -> list[choice.Trial]:
        """A server's settings as they were tried under a load."""
        return choice.trials_of(server, load, self.trials)

    def _samples(self, number: int) -> list[Sample]:
        raw = self._store.requests(number)
        return to_samples(raw) if raw is not None else []


def rate_of(limit: Figure) -> float:
    """Documents a second of the graph without a server."""
    documents = limit.conditions.get("documents", len(limit.values))
    return float(documents / limit.conditions["seconds"])


def waits_of(samples: Sequence[Sample], own: dict[int, float]) -> dict[int, tuple[float, float]]:
    """p50 and p99 of (latency - own time) / own time, by bucket; a failed request waits forever."""
    buckets: dict[int, list[Sample]] = defaultdict(list)
    for sample in samples:
        if sample.tokens in own:
            alone = own[sample.tokens]
            waited = max(0.0, sample.seconds - alone) / alone
            bucket = next(end for end in BUCKETS if sample.tokens <= end)
            buckets[bucket].append(sample._replace(seconds=waited))
    return {
        end: (percentile_of_all(some, 50), percentile_of_all(some, 99))
        for end, some in sorted(buckets.items())
    }


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
    "memory before": lambda _, test: float(test.service_idle_bytes or math.nan),
    "memory after": lambda _, test: float(test.service_after_bytes or math.nan),
}
