"""Carries out a comparison: in each round every server in turn under every load, ours behind the
limit that it is held against.

Each round begins with another server. What is measured is stored at once; a comparison that was
interrupted goes on behind the last server that had finished a round.
"""

from __future__ import annotations

import asyncio
import functools
import json
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.load.loops import Asked, Exchange, closed_loop, scheduled
from benchmarks.peers.asking import requests_of, warm_up
from benchmarks.peers.limit import Bare, measure_limit
from benchmarks.peers.process import Running, StartError, run_server, settled
from benchmarks.peers.recording import to_record
from benchmarks.peers.registry import LIMIT, OURS, Scores, Server
from benchmarks.peers.subject import Subject
from benchmarks.peers.tuning import best_settings
from benchmarks.peers.workload import TITLES, Load, Plan, Workload
from benchmarks.quiet import undisturbed
from benchmarks.records import LoadTest, Requests
from benchmarks.servers.watch import Watch
from benchmarks.store import Store

_TRIES = 2  # of a load during which the host gave the cores to others
_PACKAGES = ("onnxruntime", "tokenizers", "numpy", "uvicorn", "fastapi")


class Comparison:
    """One comparison, whose records go to a store under one run's name."""

    def __init__(
        self,
        subject: Subject,
        workload: Workload,
        store: Store,
        run: str,
        say: Callable[[str], None],
    ) -> None:
        self.subject = subject
        self.workload = workload
        self.plan: Plan = workload.plan
        self.store = store
        self.run = run
        self.say = say
        self._reference: tuple[Scores, ...] = ()

    def measure(self, servers: Sequence[Server]) -> None:
        """All rounds, without what this run has measured before."""
        for number in range(1, self.plan.rounds + 1):
            limits = self._limits(1)
            turn = (number - 1) % len(servers)
            for server in (*servers[turn:], *servers[:turn]):
                if server.name == OURS:
                    self._limits(number)
                if not self._done(number, server.name):
                    self._measure_server(number, server, limits)

    def _done(self, number: int, server: str) -> dict[str, LoadTest]:
        """What is stored of a server's round, by load, if all of it is."""
        found = {
            test.scenario: test
            for _, test in self.store.load().load_tests
            if test.run == self.run and test.server == server and test.settings["round"] == number
        }
        loads = set(TITLES) - ({"bursts"} if server == LIMIT else set())
        return found if loads <= found.keys() else {}

    def _limits(self, number: int) -> dict[str, float]:
        """Documents a second without HTTP, of the first round: rates stay the same in all."""
        done = self._done(number, LIMIT)
        if not done or not self._reference:
            self.say(f"round {number}: the limit")
            names = [name for name in TITLES if name != "bursts"]
            documents = {name: self.workload.documents(name) for name in names}
            measure = functools.partial(measure_limit, self.subject.path, documents)
            bare = undisturbed(measure, _TRIES).value
            self._reference = bare["mixed"].scores
            if not done:
                for name in names:
                    self._store_limit(number, name, bare[name])
        first = self._done(1, LIMIT)
        return {name: test.answered_per_second for name, test in first.items()}

    def _store_limit(self, number: int, name: str, bare: Bare) -> None:
        load = self.workload.load(name, number, {"behind": 1.0})
        record, _ = self._record([], load, LIMIT, settings={"round": number})
        count = len(self.workload.documents(name))
        values = {
            "model": "closed",
            "offered_per_second": None,
            "seconds": bare.seconds,
            "requests": count,
            "documents": count,
            "tokens": sum(each.tokens for each in self.workload.documents(name)),
            "answered_per_second": count / bare.seconds,
            "documents_per_second": count / bare.seconds,
            "users": None,
        }
        self.store.append(record.model_copy(update=values))
        self.say(f"  {name:7} {count / bare.seconds:7.1f} documents/s")

    def _measure_server(self, number: int, server: Server, limits: dict[str, float]) -> None:
        self.say(f"round {number}: {server.title}")
        loads = [self.workload.load(name, number, limits) for name in TITLES]
        chosen = best_settings(server)
        about = {"round": number, "server": dict(chosen)}
        try:
            about["versions"] = versions_of(server)
            while loads:
                with run_server(server, self.subject.path, chosen) as running:
                    about["start_seconds"] = round(running.start_seconds, 3)
                    loads = self._measure_loads(running, loads, about)
        except StartError as error:
            self.say(f"  {error}")
            for load in loads:
                record, _ = self._record([], load, server.name, settings=about, note=str(error))
                self.store.append(record.model_copy(update={"errors": {"did not start": 1}}))

    def _measure_loads(
        self, running: Running, loads: list[Load], about: dict[str, Any]
    ) -> list[Load]:
        """Measure one load after another; return those left when the server must start anew."""
        server = running.server
        warm_up(running, self.workload)
        alone = self._ask_alone(running)
        time.sleep(self.plan.rest)
        for index, load in enumerate(loads):
            ready = functools.partial(settled, running, self.plan.patience)
            measure = functools.partial(self._watched, running, load, requests_of(server, load))
            taken = undisturbed(measure, _TRIES, can_again=ready)
            exchanges, watch, used = taken.value
            about["others_share"] = round(watch.others_share, 3)
            about["tries"] = taken.tries
            differences = self._differences(server, load, exchanges, alone)
            record, raw = self._record(
                exchanges,
                load,
                server.name,
                memory=watch.most_memory,
                cpu_seconds=used,
                settings=about | differences,
            )
            self.store.append(record, raw)
            self.say(f"  {_line(record)}, others {watch.others_share:.0%}")
            if not ready():
                return loads[index + 1 :]
        return []

    def _watched(
        self, running: Running, load: Load, asked: list[Asked]
    ) -> tuple[list[Exchange], Watch, float]:
        """Carry a load out; with what was seen of the server, and this process's own seconds."""
        before = time.process_time()
        with Watch(running.pid) as watch:
            exchanges = self._carry_out(running, load, asked)
        return exchanges, watch, time.process_time() - before

    def _carry_out(self, running: Running, load: Load, asked: list[Asked]) -> list[Exchange]:
        patience = self.plan.patience
        if load.model == "closed":
            return asyncio.run(closed_loop(running.port, asked, self.plan.clients, 4 * patience))
        return asyncio.run(scheduled(running.port, asked, load.dues, patience))

    def _ask_alone(self, running: Running) -> dict[int, Scores]:
        """The scores of some documents, each asked for while nothing else is."""
        asked = requests_of(running.server, self.workload.load("mixed", 0, {}))
        some = [asked[index] for index in self.workload.sample_alone()]
        exchanges = asyncio.run(closed_loop(running.port, some, 1, self.plan.patience))
        return self._scores(running.server, exchanges)

    def _scores(self, server: Server, exchanges: Sequence[Exchange]) -> dict[int, Scores]:
        return {
            each.document: server.read(json.loads(each.body), self.subject.labels)
            for each in exchanges
            if not each.sample.error
        }

    def _differences(
        self, server: Server, load: Load, exchanges: Sequence[Exchange], alone: dict[int, Scores]
    ) -> dict[str, float]:
        """The largest difference of a score: under load from alone, and alone from the limit."""
        if load.documents != self.workload.documents("mixed"):
            return {}
        crowd = self._scores(server, exchanges)
        both = alone.keys() & crowd.keys()
        reference = dict(enumerate(self._reference))
        return {
            "difference_under_load": max((apart(alone[i], crowd[i]) for i in both), default=0.0),
            "difference_from_limit": max(
                (apart(alone[i], reference[i]) for i in alone), default=0.0
            ),
        }

    def _record(
        self, exchanges: Sequence[Exchange], load: Load, server: str, **values: Any
    ) -> tuple[LoadTest, Requests]:
        return to_record(
            exchanges, load, self.plan, self.subject, run=self.run, server=server, **values
        )


def apart(first: Scores, second: Scores) -> float:
    """The largest difference between two documents' scores."""
    return max(abs(first[label] - second[label]) for label in first)


def versions_of(server: Server) -> dict[str, str]:
    """The versions in a server's environment."""
    names = dict.fromkeys((server.package, *_PACKAGES))
    if not server.python.exists():
        raise StartError(f"{server.title} is not installed: run `make peers-setup`")
    script = (
        "import importlib.metadata as m, json, sys\n"
        "known = {d.metadata['Name'].lower(): d.version for d in m.distributions()}\n"
        "print(json.dumps({n: known[n] for n in sys.argv[1:] if n in known}))"
    )
    command = [str(server.python), "-c", script, *names]
    done = subprocess.run(command, capture_output=True, check=True)  # noqa: S603
    found: dict[str, str] = json.loads(done.stdout)
    return found


def _line(record: LoadTest) -> str:
    failed = sum(record.errors.values())
    p50, p99 = (f"{(value or 0) * 1000:,.0f} ms" for value in (record.p50, record.p99))
    return (
        f"{record.scenario:7} {record.answered_per_second:7.1f} documents/s, p50 {p50}, p99 {p99}, "
        f"{(record.service_memory_bytes or 0) / 2**20:,.0f} MiB, {failed} failed"
    )
