"""Carries out a comparison: trials of settings, then rounds of every server under every load.

Each round begins with another server. Every load is stored as soon as it is measured; an
interrupted comparison goes on with the loads that are missing.
"""

from __future__ import annotations

import functools
import json
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.environment import now
from benchmarks.load.loops import Exchange, run, send_once
from benchmarks.load.sending import Load, Sent, send, to_record
from benchmarks.load.summary import About
from benchmarks.peers import settings as choice
from benchmarks.peers.registry import OURS, Scores, Server, Settings
from benchmarks.peers.workload import LETTERS, SETTINGS, TITLES, Plan, Workload
from benchmarks.quiet import Taken, undisturbed
from benchmarks.records import TRIALS, Figure, LoadTest, Run
from benchmarks.servers.bare_engine import Bare, measure_bare
from benchmarks.servers.bundle import ServedBundle
from benchmarks.servers.monitor import held_by
from benchmarks.servers.process import Running, StartError
from benchmarks.store import Store

LIMIT = "limit"
_TRIES = 2  # of a load during which the host gave the cores to others
_LIMITED = ("fixed", "mixed", "behind")  # `bursts` has the documents of `mixed`
_PACKAGES = ("onnxruntime", "tokenizers", "numpy", "uvicorn", "fastapi")


class Comparison:
    """One comparison, whose records go to a store under one run."""

    def __init__(
        self,
        bundle: ServedBundle,
        workload: Workload,
        store: Store,
        run: Run,
        say: Callable[[str], None],
        loads: Sequence[str] = tuple(TITLES),
        trial_plan: Plan = SETTINGS,
    ) -> None:
        self.bundle = bundle
        self.workload = workload
        self.plan = workload.plan
        self.store = store
        self.run = run
        self.say = say
        self.loads = loads
        self.trial_plan = trial_plan
        self._reference: tuple[Scores, ...] = ()

    def try_settings(self, servers: Sequence[Server]) -> None:
        """Measure each setting of each server once, where there is something to choose."""
        trials = Comparison(
            self.bundle,
            Workload(self.bundle.path, self.trial_plan, self.bundle.longest),
            self.store,
            self.run,
            self.say,
            self.loads,
        )
        limits = trials.limits()
        known = {(t.server, _words(t.settings["server"]), t.scenario) for t in self._known_trials()}
        for server in servers:
            for settings in server.tried if len(server.tried) > 1 else ():
                cell = (server.name, _words(settings))
                missing = [name for name in self.loads if (*cell, name) not in known]
                if missing:
                    loads = [trials.workload.load(name, 1, limits) for name in missing]
                    trials.measure_server(0, server, settings, loads, TRIALS)

    def measure(self, servers: Sequence[Server], rounds: int) -> None:
        """Measure the rounds, without the loads that this run holds already."""
        for number in range(1, rounds + 1):
            turn = (number - 1) % len(servers)
            for server in (*servers[turn:], *servers[:turn]):
                if server.name == OURS:
                    self.limits(number)
                self._measure_round(number, server)

    def limits(self, number: int = 1) -> dict[str, float]:
        """Documents a second without a server in the first round: rates stay the same in all."""
        known = self._limits(number)
        if not known or not self._reference:
            self.say(f"round {number}: the graph without a server")
            documents = {name: self.workload.documents(name) for name in _LIMITED}
            measure = functools.partial(measure_bare, self.bundle.path, documents)
            bare = undisturbed(measure, _TRIES).value
            self._reference = bare["mixed"].scores
            for name in () if known else _LIMITED:
                self._store_limit(number, name, bare[name])
        return self._limits(1)

    def _limits(self, number: int) -> dict[str, float]:
        return {
            figure.conditions["load"]: len(figure.values) / figure.conditions["seconds"]
            for figure in self.store.load().figures
            if figure.name == LIMIT
            and figure.run == self.run.run
            and figure.conditions["round"] == number
            and figure.conditions["plan"] == self.plan.name
        }

    def _store_limit(self, number: int, name: str, bare: Bare) -> None:
        documents = self.workload.documents(name)
        conditions = {
            "plan": self.plan.name,
            "load": name,
            "round": number,
            "seconds": bare.seconds,
            "tokens": [document.tokens for document in documents],
        }
        self.store.append(
            Figure(
                run=self.run.run, created=now(), name=LIMIT, subject=self.bundle.name,
                unit="seconds of each document", values=bare.each, conditions=conditions,
            )
        )  # fmt: skip
        self.say(f"  ({LETTERS[name]}) {len(documents) / bare.seconds:7.1f} documents/s")

    def _known_trials(self) -> list[LoadTest]:
        """Trials of this bundle on this kind of machine, of whatever comparison."""
        loaded = self.store.load()
        same = {
            name
            for name, run in loaded.runs.items()
            if name.startswith("peers-")
            and run.environment.cpu == self.run.environment.cpu
            and run.environment.cores == self.run.environment.cores
        }
        return [
            test
            for _, test in loaded.load_tests
            if test.sweep == TRIALS
            and test.requests
            and test.run in same
            and test.bundle is not None
            and test.bundle.name == self.bundle.name
        ]

    def _measure_round(self, number: int, server: Server) -> None:
        done = {
            test.scenario
            for _, test in self.store.load().load_tests
            if test.run == self.run.run
            and test.sweep != TRIALS
            and test.requests
            and test.server == server.name
            and test.settings["round"] == number
        }
        missing = [name for name in self.loads if name not in done]
        if not missing:
            return
        limits, trials = self.limits(), self._known_trials()
        wanted: list[tuple[Settings, list[Load]]] = []
        for name in missing:
            settings = choice.best_settings(server, name, trials)
            load = self.workload.load(name, number, limits)
            same = next((loads for known, loads in wanted if known == settings), None)
            if same is None:
                wanted.append((settings, [load]))
            else:
                same.append(load)
        for settings, loads in wanted:
            self.measure_server(number, server, settings, loads, self.run.run)

    def measure_server(
        self, number: int, server: Server, settings: Settings, loads: list[Load], sweep: str
    ) -> None:
        """Start a server and measure loads; it starts again where a load left it too busy."""
        letters = "".join(LETTERS[load.name] for load in loads)
        self.say(f"round {number}: {server.title}, ({letters}) {json.dumps(dict(settings))}")
        about: dict[str, Any] = {
            "round": number,
            "server": dict(settings),
            "plan": self.plan.values(),
            "commit": self.run.environment.commit,
        }
        try:
            about["versions"] = versions_of(server)
            while loads:
                with server.run(self.bundle.path, settings) as running:
                    about["start_seconds"] = round(running.start_seconds, 3)
                    loads = self._measure_loads(running, server, loads, about, sweep)
        except StartError as error:
            self.say(f"  {error}")
            for load in loads:
                described = self._about(server, load, about, sweep)
                record, _ = to_record(load, None, described, note=str(error))
                self.store.append(record.model_copy(update={"errors": {"did not start": 1}}))

    def _measure_loads(
        self,
        running: Running,
        server: Server,
        loads: list[Load],
        about: dict[str, Any],
        sweep: str,
    ) -> list[Load]:
        """Measure one load after another; return those left when the server must start again."""
        self._send(running, server, self.workload.warm_up)
        alone = self._scores(server, self._send(running, server, self.workload.alone).exchanges)
        time.sleep(self.plan.rest)
        for index, load in enumerate(loads):
            ready = functools.partial(self._is_idle, running, server)
            measure = functools.partial(self._send, running, server, load)
            taken = undisturbed(measure, _TRIES, can_again=ready)
            after = None
            if load.name == "behind" and self.plan.settle:
                time.sleep(self.plan.settle)
                after = held_by(running.pid)
            seen = about | _noted(taken) | self._differences(server, load, taken.value, alone)
            described = self._about(server, load, seen, sweep)
            record, raw = to_record(load, taken.value, described, memory_after=after)
            self.store.append(record, raw)
            self.say(f"  {_line(record)}, others {seen['others_share']:.0%}")
            if not ready():
                return loads[index + 1 :]
        return []

    def _send(self, running: Running, server: Server, load: Load) -> Sent:
        return send(running, load, load.requests(server.request))

    def _is_idle(self, running: Running, server: Server) -> bool:
        """Whether a short document is answered in time: what queued before it is then done."""
        request = server.request("One sentence will do.")
        return run(send_once(running.port, request, self.plan.patience)).status == 200

    def _about(self, server: Server, load: Load, settings: dict[str, Any], sweep: str) -> About:
        info = self.bundle.info
        if server.options:
            info = info | {"engine": info["engine"] | {"precision": server.options[-1]}}
        return About(
            run=self.run.run,
            sweep=sweep,
            scenario=load.name,
            length=512 if load.name == "fixed" else None,
            info=info,
            settings=settings,
            server=server.name,
        )

    def _scores(self, server: Server, exchanges: Sequence[Exchange]) -> dict[int, Scores]:
        return {
            each.document: server.read(json.loads(each.body), self.bundle.labels)
            for each in exchanges
            if not each.sample.error
        }

    def _differences(
        self, server: Server, load: Load, sent: Sent, alone: dict[int, Scores]
    ) -> dict[str, float]:
        """The largest difference of a score: under load from alone, alone from no server."""
        if load.documents != self.workload.documents("mixed"):
            return {}
        crowd = self._scores(server, sent.exchanges)
        both = alone.keys() & crowd.keys()
        reference = dict(enumerate(self._reference))
        return {
            "difference_under_load": max((apart(alone[i], crowd[i]) for i in both), default=0.0),
            "difference_from_limit": max(
                (apart(alone[i], reference[i]) for i in alone), default=0.0
            ),
        }


def _words(settings: Settings) -> str:
    return json.dumps(dict(settings), sort_keys=True)


def apart(first: Scores, second: Scores) -> float:
    """The largest difference between two documents' scores."""
    return max(abs(first[label] - second[label]) for label in first)


def versions_of(server: Server) -> dict[str, str]:
    """The versions in a server's environment, Python's among them."""
    names = dict.fromkeys((server.package, *_PACKAGES))
    if not server.python.exists():
        raise StartError(f"{server.title} is not installed: run `make peers-setup`")
    script = (
        "import importlib.metadata as m, json, platform, sys\n"
        "known = {d.metadata['Name'].lower(): d.version for d in m.distributions()}\n"
        "found = {n: known[n] for n in sys.argv[1:] if n in known}\n"
        "print(json.dumps(found | {'python': platform.python_version()}))"
    )
    command = [str(server.python), "-c", script, *names]
    done = subprocess.run(command, capture_output=True, check=True)  # noqa: S603
    found: dict[str, str] = json.loads(done.stdout)
    return found


def _noted(taken: Taken[Sent]) -> dict[str, Any]:
    """How others disturbed a load."""
    return {
        "others_share": round(taken.value.monitor.others_share, 3),
        "stolen": round(taken.stolen, 4),
        "tries": taken.tries,
    }


def _line(record: LoadTest) -> str:
    failed = sum(record.errors.values())
    p50, p99 = (f"{(value or 0) * 1000:,.0f} ms" for value in (record.p50, record.p99))
    return (
        f"({LETTERS[record.scenario]}) {record.answered_per_second:7.1f} documents/s, p50 {p50}, "
        f"p99 {p99}, {(record.service_memory_bytes or 0) / 2**20:,.0f} MiB, {failed} failed"
    )
