"""Runs the loads of a command one after the other and stores their records."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from benchmarks.documents.lengths import Fixed, Lengths
from benchmarks.documents.making import make_documents
from benchmarks.load.summary import About, Outcome, summarize
from benchmarks.records import LoadTest, Run
from benchmarks.servers.process import run_service
from benchmarks.store import Store
from loadtests.deployments import Deployment
from loadtests.generator import Placement, run_load
from loadtests.plan import Plan
from loadtests.service_client import ServiceClient
from loadtests.table import LiveLine

_LEAST = 4  # requests of a closed load, however slow they are
_SLOW_SECONDS = 5.0  # a document that takes longer needs no warm-up of its own in a quick run
_TOO_SLOW_SECONDS = 100.0  # left out of a quick run
_HALF = 0.5  # of the predicted capacity is offered when no load is named


@dataclass(frozen=True)
class Load:
    """Arrivals a second, or a number of users; 0 of both: chosen by what is served."""

    model: Literal["open", "closed"]
    rate: float = 0.0
    users: int = 0


@dataclass(frozen=True)
class LoadOptions:
    """What all loads of one command have in common."""

    mix: dict[str, int]
    seconds: float
    warm_up: float
    think: float = 0.0
    timeout: float = 30.0
    seed: int = 0
    pool: int = 64
    batch_size: int = 8
    bulk_size: int = 32
    quick: bool = False
    own: Sequence[str] = ()
    key: str = ""
    placement: Placement = field(default_factory=Placement)


@dataclass(frozen=True)
class Service:
    """A service under load: where, its process when it is ours, what it says of itself."""

    client: ServiceClient
    pid: int | None
    info: dict[str, Any]
    started: dict[str, Any]


@contextmanager
def open_service(deployment: Deployment | None, address: str, key: str) -> Iterator[Service]:
    """The service at an address, or one that is started for the purpose."""
    if deployment is None:
        client = ServiceClient(address, key)
        yield Service(client, None, client.info(), {})
        return
    with run_service(deployment.settings) as running:
        client = ServiceClient(running.address)
        started = {
            "start_seconds": round(running.start_seconds, 3),
            "service": {k: v for k, v in deployment.settings.items() if k != "bundle"},
        }
        yield Service(client, running.pid, client.info(), started)


class LoadRunner:
    """Prepares and runs loads; every record goes to the store as soon as it is there."""

    def __init__(
        self, options: LoadOptions, store: Store, *, joined: bool, say: Callable[[str], object]
    ) -> None:
        self.options = options
        self.tests: list[LoadTest] = []
        self.interrupted = False
        self._store = store
        self._run = ""
        self._joined = joined
        self._say = say

    def begin(self, run: Run) -> None:
        """Store a run's record: the loads that follow are its."""
        self._run = run.run
        self._store.append(run)

    def prepare(self, service: Service, lengths: Lengths, load: Load) -> Plan | None:
        """The plan of a load, with its documents; None when it would take too long."""
        options = self.options
        patient = replace(service.client, seconds=60.0)
        number = len(options.own) if lengths.title == "own documents" else options.pool
        documents = tuple(
            make_documents(
                lengths, number, patient.count_tokens, seed=options.seed, own=options.own
            )
        )  # fmt: skip
        texts = [document.text for document in documents[:200]]
        seconds = [float(each["seconds"]) for each in patient.estimate(texts)]
        if options.quick and max(seconds) > _TOO_SLOW_SECONDS:
            self._say(
                f"left out of a quick run: a document is predicted to take {max(seconds):.0f} s"
            )
            return None
        slow = options.quick and max(seconds) > _SLOW_SECONDS
        workers = int(service.info["workers"]["short"])
        rate, users = load.rate, load.users
        if load.model == "open" and not rate:
            work = sum(seconds) / len(seconds) * self._documents_per_request()
            rate = round(_HALF * workers / max(work, 1e-6), 3)
            self._say(f"offering {rate:g} requests a second: half of the predicted capacity")
        if load.model == "closed" and not users:
            users = workers
        limit = float(service.info["limits"]["max_timeout_ms"]) / 1000
        return Plan(
            address=service.client.address,
            service_model=str(service.info["model"]),
            model=load.model,
            documents=documents,
            seconds=options.seconds,
            warm_up=0.0 if slow else options.warm_up,
            least=_LEAST if load.model == "closed" else 0,
            most_seconds=4 * options.seconds if load.model == "closed" else 0.0,
            rate=rate,
            users=users,
            think=options.think,
            mix=options.mix,
            batch_size=options.batch_size,
            bulk_size=options.bulk_size,
            timeout=min(options.timeout, limit),
            seed=options.seed,
            key=options.key,
            pid=service.pid,
        )

    def run(
        self,
        plan: Plan,
        service: Service,
        lengths: Lengths,
        finish: Callable[[LoadTest], LoadTest] = lambda test: test,
    ) -> LoadTest:
        """Carry out a plan and keep its record."""
        line = LiveLine(plan.seconds or 0.0)
        outcome = run_load(plan, self.options.placement, line.show)
        line.clear()
        self.interrupted = self.interrupted or outcome.interrupted
        return self.keep(plan, outcome, service, lengths, finish)

    def keep(
        self,
        plan: Plan,
        outcome: Outcome,
        service: Service,
        lengths: Lengths,
        finish: Callable[[LoadTest], LoadTest] = lambda test: test,
    ) -> LoadTest:
        """Summarize a finished load and store its record."""
        kinds = "" if list(plan.mix) == ["interactive"] else " · mixed callers"
        about = About(
            run=self._run,
            sweep=self._run if self._joined else "",
            scenario=lengths.title + kinds,
            length=lengths.tokens if isinstance(lengths, Fixed) else None,
            info=service.info,
            settings=self._settings(plan) | service.started,
        )
        test, requests = summarize(outcome, about)
        test = finish(test)
        self._store.append(test, requests)
        self.tests.append(test)
        return test

    def _documents_per_request(self) -> float:
        sizes = {"batch": self.options.batch_size, "bulk": self.options.bulk_size}
        mix = self.options.mix
        return sum(w * sizes.get(kind, 1) for kind, w in mix.items()) / sum(mix.values())

    def _settings(self, plan: Plan) -> dict[str, Any]:
        return {
            "address": plan.address,
            "mix": plan.mix,
            "documents": len(plan.documents),
            "own_documents": bool(self.options.own),
            "timeout_seconds": plan.timeout,
            "think_seconds": plan.think,
            "seed": plan.seed,
            "workers": self.options.placement.workers,
            "quick": self.options.quick,
        }


def say(line: str) -> None:
    """A line for the person at the terminal, apart from the results."""
    print(line, file=sys.stderr, flush=True)
