"""`python -m benchmarks.peers run`, `tune` or `report`; see `docs/peers.md`."""

from __future__ import annotations

import argparse
import json
import random
import shlex
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.environment import describe_environment
from benchmarks.peers.registry import ROOT, SERVERS, find_servers
from benchmarks.peers.report import write_page
from benchmarks.peers.runner import Comparison
from benchmarks.peers.subject import Subject, read_subject
from benchmarks.peers.tuning import tune
from benchmarks.peers.workload import FULL, QUICK, TUNING, Plan, Workload
from benchmarks.quiet import cores_in_use
from benchmarks.records import Run
from benchmarks.servers.ending import unwind_when_terminated
from benchmarks.store import LOCAL, Store
from models.errors import ConfigError, LongdocError

PAGE = ROOT / "docs" / "peers.md"
_SECONDS = {"quick": 30, "full": 65}  # of a server and round, roughly, by plan


def main() -> int:
    """Run one step; return 0 when done, 2 for a mistake the user can mend."""
    args = _parser().parse_args()
    unwind_when_terminated()
    try:
        if args.command == "report":
            write_page(Store(args.store), args.run, PAGE)
        elif args.command == "tune":
            subject = read_subject(args.bundle)
            plan = QUICK if args.quick else TUNING
            workload = Workload(subject.path, plan, subject.longest)
            tune(find_servers(args.only), subject.path, workload, _speaker(), anew=True)
        else:
            _run(args)
    except LongdocError as error:
        print(f"peers: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("peers: interrupted; `run --resume` goes on from here", file=sys.stderr)
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="compare, store the results and write docs/peers.md")
    run.add_argument("--resume", action="store_true", help="go on with the last unfinished one")
    run.add_argument("--no-tune", action="store_true", help="take the settings that are kept")
    run.add_argument("--no-page", action="store_true", help="leave docs/peers.md as it is")
    report = commands.add_parser("report", help="write docs/peers.md from stored results")
    report.add_argument("--run", help="the run's name [the last comparison that finished]")
    for command in (run, report):
        command.add_argument("--store", type=Path, default=LOCAL, help=f"results file [{LOCAL}]")
    tuning = commands.add_parser("tune", help="find each peer's best settings and keep them")
    names = ",".join(server.name for server in SERVERS)
    for command in (run, tuning):
        command.add_argument("--bundle", type=Path, help="the bundle that all serve")
        command.add_argument("--quick", action="store_true", help="a short look: does it all work?")
        command.add_argument("--only", metavar="NAMES", help=f"some of {names}")
    return parser


def _run(args: argparse.Namespace) -> None:
    plan = QUICK if args.quick else FULL
    servers = find_servers(args.only)
    subject = read_subject(args.bundle)
    store = Store(args.store)
    run = resumed_run(store, plan, subject) if args.resume else new_run(plan, subject)
    store.append(run)
    say = _speaker()
    minutes = plan.rounds * len(servers) * _SECONDS[plan.name] / 60
    rounds = f"{plan.rounds} round" + "s" * (plan.rounds > 1)
    say(f"{run.run}: {rounds} of {len(servers)} servers, about {minutes:.0f} minutes")
    if plan is FULL and not args.no_tune:
        say("first each peer whose settings are not all known for this bundle (2 minutes each)")
        tune(servers, subject.path, Workload(subject.path, TUNING, subject.longest), say)
    workload = Workload(subject.path, plan, subject.longest)
    Comparison(subject, workload, store, run.run, say).measure(servers)
    finished = datetime.now(UTC).isoformat(timespec="seconds")
    store.append(run.model_copy(update={"finished": finished}))
    if not args.no_page:
        write_page(store, run.run, PAGE)
        say(f"written: {PAGE.relative_to(ROOT)}")


def new_run(plan: Plan, subject: Subject) -> Run:
    """A comparison that begins now."""
    started = datetime.now(UTC).isoformat(timespec="seconds")
    return Run(
        run=f"peers-{started[:19].replace(':', '')}-{random.randrange(1 << 16):04x}",  # noqa: S311
        started=started,
        finished=None,
        command=shlex.join(["python", "-m", "benchmarks.peers", *sys.argv[1:]]),
        plan=_plan_text(plan, subject),
        environment=describe_environment(),
        load_before=cores_in_use(),
    )


def resumed_run(store: Store, plan: Plan, subject: Subject) -> Run:
    """The last comparison of this plan and bundle that did not finish."""
    runs = [run for run in store.load().runs.values() if run.run.startswith("peers-")]
    same = [run for run in runs if run.plan == _plan_text(plan, subject)]
    if not same or same[-1].finished is not None:
        raise ConfigError("there is no unfinished comparison of this plan and bundle to resume")
    return same[-1]


def _plan_text(plan: Plan, subject: Subject) -> str:
    return json.dumps({"peers": plan.values(), "bundle": subject.digest})


def _speaker() -> Callable[[str], None]:
    began = time.monotonic()

    def say(line: str) -> None:
        spent = int(time.monotonic() - began)
        print(f"{spent // 60:3}:{spent % 60:02} {line}", file=sys.stderr, flush=True)

    return say


if __name__ == "__main__":
    sys.exit(main())
