"""`longdoc loadtest`: load a service, or services started for the purpose, and report."""

from __future__ import annotations

import argparse
import hashlib
import json
import shlex
import sys
from collections.abc import Iterator
from importlib.metadata import version
from itertools import product

from benchmarks.documents.lengths import Lengths
from benchmarks.environment import begin_run, now
from benchmarks.quiet import cores_in_use
from benchmarks.records import LoadTest, Run
from benchmarks.servers.process import StartError, unwind_when_terminated
from benchmarks.store import Store
from loadtests.deployments import Deployment
from loadtests.generator import MASTER_PORT, run_web, run_worker
from loadtests.html_report import write_report
from loadtests.limits import Limit
from loadtests.options import Request, configure, read_request
from loadtests.peak import Peak, find_peak
from loadtests.plan import Plan
from loadtests.runner import Load, LoadRunner, Service, open_service, say
from loadtests.table import load_of, remarks, summary_table, title_of
from models.errors import ConfigError

__all__ = ["configure", "run"]


def run(args: argparse.Namespace) -> int:
    """Load and report; 0 done, 1 a limit was exceeded or the service was lost, 130 interrupted."""
    unwind_when_terminated()
    if args.worker_of:
        return _work_for(args.worker_of)
    request = read_request(args)
    if args.html is not None and not args.html.resolve().parent.is_dir():
        raise ConfigError(f"--html: there is no folder {args.html.parent}")
    runner = LoadRunner(request.options, Store(args.store), joined=_is_joined(request), say=say)
    before = cores_in_use()  # before a service of ours starts
    current: Run | None = None
    conclusions: list[str] = []
    code = 0
    for deployment, lengths, load in _points(request):
        try:
            with open_service(deployment, request.address, request.options.key) as service:
                current = current or _begin(request, runner, before)
                plan = runner.prepare(service, lengths, load)
                if plan is None:
                    continue
                if args.web:
                    _steer(runner, plan, service, lengths, args)
                elif request.peak:
                    conclusions.append(_seek(runner, plan, service, lengths, request.peak))
                else:
                    _announce(runner.run(plan, service, lengths))
        except StartError as error:
            if request.points == 1:
                raise
            say(f"{deployment.title if deployment else ''}: {error}")
            code = 1
        if runner.interrupted:
            break
    return _conclude(args, request, runner, current, conclusions) or code


def _is_joined(request: Request) -> bool:
    """Whether the loads belong together: a sweep, or the search for a peak."""
    return request.points > 1 or request.peak is not None


def _points(request: Request) -> Iterator[tuple[Deployment | None, Lengths, Load]]:
    services: list[Deployment | None] = [*request.deployments] or [None]
    for number, point in enumerate(product(services, request.lengths, request.loads), 1):
        deployment, lengths, _ = point
        if request.points > 1:
            name = f"{deployment.title}, " if deployment else ""
            say(f"[{number}/{request.points}] {name}{lengths.title}")
        yield point


def _steer(
    runner: LoadRunner, plan: Plan, service: Service, lengths: Lengths, args: argparse.Namespace
) -> None:
    """Let the user start and stop loads in the browser; keep each one's record."""
    plan = plan.with_(seconds=None, least=0)
    say(f"Locust's page is at http://{args.web_host}:{args.web_port}; every load that is started "
        "and stopped there is kept; end with Ctrl-C")  # fmt: skip
    placement = runner.options.placement
    for outcome in run_web(plan, placement, args.web_host, args.web_port):
        test = runner.keep(plan, outcome, service, lengths)
        print(summary_table([test]), flush=True)


def _seek(runner: LoadRunner, plan: Plan, service: Service, lengths: Lengths, limit: Limit) -> str:
    """Find the peak; every trial is a record. Says what was found."""

    def keeps(rate: float) -> bool:
        def finish(test: LoadTest) -> LoadTest:
            kept = not limit.exceeded(test) and not test.errors
            return test.model_copy(
                update={"settings": test.settings | {"peak": str(limit), "kept": kept}}
            )

        test = runner.run(plan.with_(rate=round(rate, 3)), service, lengths, finish)
        verdict = "kept" if test.settings["kept"] else "missed"
        say(f"  {load_of(test)}: {verdict}{_because(test, limit)}")
        if runner.interrupted or not test.metrics_after:
            raise _StoppedError
        return bool(test.settings["kept"])

    try:
        start = plan.rate if plan.rate > 0 else 1.0
        quick = runner.options.quick
        found = find_peak(keeps, start, precision=0.25 if quick else 0.1, again=not quick)
    except _StoppedError:
        return "the peak was not found: the search was ended"
    return describe_peak(found, limit)


class _StoppedError(Exception):
    """A search that cannot go on."""


def _because(test: LoadTest, limit: Limit) -> str:
    errors = sum(test.errors.values())
    words = [limit.exceeded(test), f"{errors} errors" if errors else ""]
    said = ", ".join(word for word in words if word)
    return f" ({said})" if said else ""


def describe_peak(found: Peak, limit: Limit) -> str:
    """What a search found, in a sentence."""
    target = str(limit).replace("=", " under ")
    if found.kept == 0:
        return f"no rate kept {target} with no errors, down to {found.missed:.3g} requests a second"
    beyond = f"; {found.missed:.3g} did not" if found.missed else "; more was not tried"
    return f"peak: {found.kept:.3g} requests a second kept {target} with no errors{beyond}"


def _announce(test: LoadTest) -> None:
    for remark in remarks(test):
        say(f"  {remark}")


def _conclude(
    args: argparse.Namespace,
    request: Request,
    runner: LoadRunner,
    current: Run | None,
    conclusions: list[str],
) -> int:
    """The table, the report, the verdict."""
    tests = runner.tests
    if not tests or current is None:
        say("nothing was measured")
        return 130 if runner.interrupted else 1
    finished = None if runner.interrupted else now()
    Store(args.store).append(current.model_copy(update={"finished": finished}))
    exceeded = [
        f"{title_of(test)}, {load_of(test)}: {sentence}"
        for test in tests
        for sentence in (limit.exceeded(test) for limit in request.limits)
        if sentence
    ]
    if not args.web:
        print(summary_table(tests))
    for line in (*conclusions, *exceeded):
        print(line)
    if args.html:
        write_report(args.html, tests, current, [*conclusions, *exceeded])
        say(f"report in {args.html}")
    say(f"{len(tests)} record{'s' * (len(tests) > 1)} in {args.store}")
    if runner.interrupted:
        return 130
    lost = any(test.metrics_before and not test.metrics_after for test in tests)
    return 1 if exceeded or lost else 0


def _begin(request: Request, runner: LoadRunner, load_before: float) -> Run:
    """Store the run's record: what machine this is and how busy it was before."""
    about = [
        request.address,
        [d.title for d in request.deployments],
        [each.title for each in request.lengths],
        [[load.model, load.rate, load.users] for load in request.loads],
        request.options.mix,
        request.options.seconds,
    ]
    run = begin_run(
        "load",
        hashlib.sha256(json.dumps(about).encode()).hexdigest()[:16],
        shlex.join(["longdoc", *sys.argv[1:]]),
        load_before=load_before,
        versions={"locust": version("locust")},
    )
    if run.busy:
        say(f"others use {run.load_before:g} of this machine's cores: the records say so")
    runner.begin(run)
    return run


def _work_for(master: str) -> int:
    host, _, port = master.partition(":")
    if not host or (port and not (port.isdecimal() and 0 < int(port) < 65_536)):
        raise ConfigError(f"--worker-of: {master!r} is no HOST or HOST:PORT")
    return run_worker(host, int(port or MASTER_PORT))
