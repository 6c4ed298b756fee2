"""Carries out a plan: memory in fresh processes, times in interleaved rounds, records kept."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.engine.networks import Networks
from benchmarks.engine.plan import Configuration, Plan
from benchmarks.engine.prediction import Experience
from benchmarks.engine.process import Worker, WorkerError
from benchmarks.environment import available_memory, now
from benchmarks.records import Measurement
from models.bundle import Bundle
from models.errors import LongdocError

_SHARE_OF_MEMORY = 0.8  # of what is free may be used
_PROCESS_BYTES = 600 << 20  # what a process with a loaded engine takes before it runs


class _LeftOutError(Exception):
    """A configuration that is left out; the message says why."""


@dataclass
class _Trial:
    """A configuration whose process has made its first run."""

    configuration: Configuration
    worker: Worker
    first: dict[str, Any]
    about: dict[str, Any]
    rounds: int
    samples: list[float] = field(default_factory=list)
    failure: str = ""


class Runner:
    """Measures what of a plan is not measured yet, and hands over each record as it is made."""

    def __init__(
        self,
        plan: Plan,
        run: str,
        networks: Networks,
        *,
        keep: Callable[[Measurement], object],
        progress: Callable[[Configuration], object],
        free_memory: Callable[[], int] = available_memory,
    ) -> None:
        self._plan = plan
        self._run = run
        self._networks = networks
        self._keep = keep
        self._progress = progress
        self._free_memory = free_memory
        self._experience = Experience()
        self._random = random.Random(0)  # noqa: S311 - an order, not a secret

    def measure(self, done: Iterable[Measurement] = ()) -> None:
        """Measure all groups; `done` are this run's records from before an interruption."""
        finished = set()
        for record in done:
            finished.add(Configuration.of(record))
            self._experience.learn(record)
        for group in self._plan.groups():
            waiting = [c for c in group if c not in finished]
            while waiting:
                waiting = self._measure_wave(waiting)

    def _measure_wave(self, waiting: list[Configuration]) -> list[Configuration]:
        """Measure as many of a group as fit in memory together; return those left."""
        with ExitStack() as workers:
            trials: list[_Trial] = []
            left = deque(waiting)
            while left:
                if trials and self._needed(left[0]) > self._allowed():
                    break  # perhaps it fits when those before it have gone
                configuration = left.popleft()
                try:
                    trials.append(self._start(configuration, workers))
                except _LeftOutError as reason:
                    self._record(configuration, status="skipped", reason=str(reason))
                except (LongdocError, WorkerError) as error:
                    self._record(configuration, status="failed", reason=str(error))
                self._progress(configuration)
            self._time(trials)
            return list(left)

    def _start(self, configuration: Configuration, workers: ExitStack) -> _Trial:
        """Make the first run in a fresh process: its memory counts, its time is warm-up."""
        needed, allowed = self._needed(configuration), self._allowed()
        if needed > allowed:
            raise _LeftOutError(
                f"predicted to need {needed / 1e9:.1f} GB; {allowed / 1e9:.1f} GB may be used"
            )
        place = (configuration.series, configuration.batch, configuration.length)
        seconds = self._experience.predict_seconds(*place)
        if seconds is not None and seconds > self._plan.max_seconds:
            raise _LeftOutError(
                f"a run is predicted to take {seconds:.0f} s; at most "
                f"{self._plan.max_seconds:g} s are allowed"
            )
        bundle, bundled = self._networks.find(
            configuration.attention, configuration.length, configuration.precision
        )
        _check_graph(configuration, bundle)
        worker = Worker(configuration, bundle.path, allowed)
        workers.callback(worker.close)
        first = worker.first_run()
        if first["first_seconds"] < 1:
            worker.time(1)
        predicted = self._experience.predict_bytes(*place)
        about = {
            "bundle": bundled,
            "peak_bytes": first["peak_bytes"],
            "baseline_bytes": first["baseline_bytes"],
            "predicted_bytes": predicted,
        }
        rounds = self._plan.rounds_for(first["first_seconds"])
        return _Trial(configuration, worker, first, about, rounds)

    def _time(self, trials: list[_Trial]) -> None:
        """Time all in rounds, each round in another order, then record them."""
        for index in range(self._plan.rounds):
            for trial in self._random.sample(trials, len(trials)):
                if trial.failure or index >= trial.rounds:
                    continue
                try:
                    runs = self._plan.runs_per_round(trial.first["first_seconds"])
                    trial.samples += trial.worker.time(runs)
                except WorkerError as error:
                    trial.failure = str(error)
        for trial in trials:
            record = self._record(
                trial.configuration,
                status="failed" if trial.failure else "measured",
                reason=trial.failure,
                samples_seconds=tuple(trial.samples),
                rounds=trial.rounds,
                **trial.about,
            )
            self._experience.learn(record)

    def _record(self, configuration: Configuration, **values: Any) -> Measurement:
        record = Measurement(run=self._run, created=now(), **asdict(configuration), **values)
        self._keep(record)
        return record

    def _needed(self, configuration: Configuration) -> int:
        place = (configuration.series, configuration.batch, configuration.length)
        return (self._experience.predict_bytes(*place) or 0) + _PROCESS_BYTES

    def _allowed(self) -> int:
        return int(self._free_memory() * _SHARE_OF_MEMORY)


def _check_graph(configuration: Configuration, bundle: Bundle) -> None:
    graph = bundle.manifest.graphs.get(configuration.precision)
    if configuration.engine == "onnxruntime" and (graph is None or not graph.valid):
        reason = "it was not exported so" if graph is None else graph.reason
        raise _LeftOutError(f"no valid {configuration.precision} graph: {reason}")
