"""What Locust runs: a class for each kind of caller, and one that carries out a schedule.

`longdoc loadtest` starts Locust with this file and a plan. A worker on another machine gets the
plan from its master, so that it needs nothing but this code. Importing this patches the standard
library: only Locust does.
"""

from __future__ import annotations

import os
import random
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import gevent
from gevent.event import Event
from locust import User, events, runners, task
from locust.env import Environment
from locust.runners import MasterRunner, WorkerRunner

from benchmarks.load.arrivals import poisson
from benchmarks.load.samples import Sample, Usage
from loadtests.coordinator import Coordinator
from loadtests.plan import VARIABLE, Plan
from loadtests.sender import Sender

runners.WORKER_REPORT_INTERVAL = 1.0

_ASK_AGAIN = 0.5


class _Process:
    """What this process of Locust knows: the plan, its own part of the load, and all parts."""

    def __init__(self) -> None:
        path = os.environ.get(VARIABLE)
        self.folder = Path(path).parent if path else None
        self.plan = Plan.read(Path(path)) if path else None
        self.has_plan = Event()
        self.sender: Sender | None = None
        self.coordinator: Coordinator | None = None
        self.loads = 0
        self.sent = 0  # samples of the sender that were handed on
        if self.plan:
            self.has_plan.set()


_process = _Process()


def _weight(kind: str) -> int:
    """How often a class is used: by the plan's mix, and none of the other model's."""
    plan = _process.plan
    if plan is None:
        return 1  # a worker: its master decides
    if plan.model == "open":
        return int(kind == "arrivals")
    return plan.mix.get(kind, 0)


class _Caller(User):
    """Sends one request after the other."""

    abstract = True
    kind = "interactive"

    @task
    def send(self) -> None:
        """One request and its answer."""
        sender = _sender()
        if sender.over:
            gevent.sleep(3600)  # until Locust ends the users
        sender.send_now(self.kind)
        sender.think()


class Interactive(_Caller):
    """One document."""

    weight = _weight("interactive")


class Batch(_Caller):
    """A list of documents."""

    kind = "batch"
    weight = _weight("batch")


class Bulk(_Caller):
    """A stream of documents."""

    kind = "bulk"
    weight = _weight("bulk")


class Evidence(_Caller):
    """One document, with evidence."""

    kind = "evidence"
    weight = _weight("evidence")


class OpenInference(_Caller):
    """One document by the Open Inference Protocol."""

    kind = "v2"
    weight = _weight("v2")


class Arrivals(User):
    """Lets requests go on schedule, whatever the service does."""

    weight = _weight("arrivals")
    _number = 0

    @task
    def carry_out(self) -> None:
        """The whole schedule, then nothing more."""
        sender, plan = _sender(), _sender().plan
        Arrivals._number += 1
        index = getattr(self.environment.runner, "worker_index", 0)
        source = random.Random(f"{plan.seed}-arrivals-{index}-{Arrivals._number}")  # noqa: S311
        rate = _rate(self.environment, plan) / max(1, plan.workers)
        for due in poisson(rate, source):
            sender.send_when_due(due - plan.warm_up)
            if sender.over:
                break
        gevent.sleep(3600)


def _rate(environment: Environment, plan: Plan) -> float:
    """Arrivals a second: as set on the page in the browser, else as planned."""
    return float(getattr(environment.parsed_options, "rate", 0) or plan.rate)


def _sender() -> Sender:
    assert _process.sender is not None  # noqa: S101 - made when the test starts
    return _process.sender


@events.init_command_line_parser.add_listener
def _add_options(parser: ArgumentParser) -> None:
    rate = _process.plan.rate if _process.plan else 0
    parser.add_argument("--rate", type=float, default=rate, help="arrivals a second (open model)")


@events.init.add_listener
def _connect(environment: Environment, **_: Any) -> None:
    """Masters hand out the plan; workers ask until they have it."""
    runner = environment.runner
    if isinstance(runner, MasterRunner):

        def hand_out(msg: Any, **_: Any) -> None:
            if _process.plan:
                plan = {"json": _process.plan.to_json()}
                runner.send_message("plan", plan, client_id=msg.node_id)

        runner.register_message("plan wanted", hand_out)
    elif isinstance(runner, WorkerRunner) and _process.plan is None:

        def receive(msg: Any, **_: Any) -> None:
            _process.plan = Plan.from_json(msg.data["json"])
            _process.has_plan.set()

        def ask() -> None:
            while not _process.has_plan.is_set():
                runner.send_message("plan wanted")
                gevent.sleep(_ASK_AGAIN)

        runner.register_message("plan", receive)
        gevent.spawn(ask)


@events.test_start.add_listener
def _begin(environment: Environment, **_: Any) -> None:
    _process.has_plan.wait()
    runner, plan = environment.runner, _process.plan
    assert plan is not None  # noqa: S101
    if not isinstance(runner, WorkerRunner):
        assert _process.folder is not None  # noqa: S101
        _process.loads += 1
        users = int(getattr(runner, "target_user_count", 0) or plan.users)
        _process.coordinator = Coordinator(
            plan, _process.folder, _process.loads, _rate(environment, plan), users
        )
        gevent.spawn(_process.coordinator.follow, _hand_on, lambda: _finish(environment))
    if not isinstance(runner, MasterRunner):
        index = getattr(runner, "worker_index", 0)
        _process.sender = Sender(plan, index, _tell_locust)
        _process.sent = 0


def _finish(environment: Environment) -> None:
    """End Locust when the plan has an end; by hand in the browser it goes on."""
    if _process.plan and _process.plan.seconds is not None and environment.runner:
        environment.runner.quit()


@events.test_stopping.add_listener
def _stop(**_: Any) -> None:
    if _process.sender:
        _process.sender.stopped = True
    if _process.coordinator:
        _process.coordinator.stop()


@events.test_stop.add_listener
def _end(environment: Environment, **_: Any) -> None:
    """By hand: take what is there, after a moment for the workers' last reports."""
    if _process.coordinator and isinstance(environment.runner, MasterRunner):
        gevent.sleep(2 * runners.WORKER_REPORT_INTERVAL)
    _write_what_is_there()
    if _process.sender:
        _process.sender.end()


@events.quitting.add_listener
def _quit(**_: Any) -> None:
    _write_what_is_there()


def _write_what_is_there() -> None:
    """Write the result if that is not done yet: then a plan that has an end was interrupted."""
    if _process.coordinator and _process.plan:
        _hand_on()
        by_hand = _process.plan.seconds is None
        _process.coordinator.write("" if by_hand else "interrupted")


def _tell_locust(sample: Sample, path: str, size: int) -> None:
    """Locust's own statistics and its browser page show every request, too."""
    events.request.fire(
        request_type=sample.kind,
        name=path,
        response_time=sample.seconds * 1000,
        response_length=size,
        exception=RuntimeError(sample.error) if sample.error else None,
        context={},
    )


def _new_samples(sender: Sender) -> list[Sample]:
    new = sender.done[_process.sent :]
    _process.sent += len(new)
    return new


def _hand_on() -> None:
    """In a single process: from the sender to the coordinator."""
    sender, coordinator = _process.sender, _process.coordinator
    if sender and coordinator:
        finished = sender.finished  # asked first: what is not finished may still grow
        samples, usage = _new_samples(sender), sender.usage()
        coordinator.take("here", samples, usage, flying=sender.in_flight, finished=finished)


@events.report_to_master.add_listener
def _report(data: dict[str, Any], **_: Any) -> None:
    sender = _process.sender
    if sender:
        data["finished"] = sender.finished
        data["flying"] = sender.in_flight
        data["samples"] = [list(sample) for sample in _new_samples(sender)]
        data["usage"] = list(sender.usage())
        if sender.ended:  # that was its last report
            _process.sender = None


@events.worker_report.add_listener
def _collect(client_id: str, data: dict[str, Any], **_: Any) -> None:
    if _process.coordinator and "usage" in data:
        cpu, seconds, overslept = data["usage"]
        _process.coordinator.take(
            client_id,
            [Sample(*row) for row in data["samples"]],
            Usage(cpu, seconds, tuple(overslept)),
            flying=data["flying"],
            finished=data["finished"],
        )
