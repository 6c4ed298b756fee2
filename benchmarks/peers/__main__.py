"""`python -m benchmarks.peers`: compare with other servers and store the results; docs/peers.md."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.environment import begin_run, now
from benchmarks.peers.registry import SERVERS, find_servers
from benchmarks.peers.runner import Comparison
from benchmarks.peers.workload import FULL, LETTERS, QUICK, Plan, Workload
from benchmarks.records import Run
from benchmarks.servers.bundle import ServedBundle, read_bundle
from benchmarks.servers.process import unwind_when_terminated
from benchmarks.store import LOCAL, Store
from models.errors import ConfigError, LongdocError

_ROUND_SECONDS = {"quick": 20, "full": 65}  # of a server, roughly
_TRIAL_SECONDS = 22


def main() -> int:
    """Compare; return 0 when done, 2 for a mistake the user can correct, 130 interrupted."""
    unwind_when_terminated()
    try:
        _compare(_parser().parse_args())
    except LongdocError as error:
        print(f"peers: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("peers: interrupted; `--resume` goes on from here", file=sys.stderr)
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    add = parser.add_argument
    names = ",".join(server.name for server in SERVERS)
    add("--only", metavar="NAMES", help=f"some of {names}")
    add("--loads", metavar="LETTERS", default="abcd", help="some of the loads [abcd]")
    add("--rounds", type=int, metavar="N", help=f"rounds [{FULL.rounds}; 1 if quick]")
    add("--quick", action="store_true", help="a short look: does it all work?")
    add("--resume", action="store_true", help="go on with the last comparison of this plan")
    add("--no-trials", action="store_true", help="do not try settings that were never tried")
    add("--trials-only", action="store_true", help="try settings, and compare another time")
    add("--bundle", type=Path, help="the bundle that all serve")
    add("--store", type=Path, default=LOCAL, metavar="FILE", help=f"results file [{LOCAL}]")
    return parser


def _compare(args: argparse.Namespace) -> None:
    plan = QUICK if args.quick else FULL
    rounds = args.rounds or plan.rounds
    loads = [name for name, letter in LETTERS.items() if letter in args.loads]
    servers = find_servers(args.only)
    bundle, store, say = read_bundle(args.bundle), Store(args.store), _speaker()
    run = find_unfinished(store, plan, bundle) if args.resume else new_run(plan, bundle)
    store.append(run)
    if run.busy:
        say(f"others use {run.load_before:g} of this machine's cores: the records say so")
    workload = Workload(bundle.path, plan, bundle.longest)
    comparison = Comparison(bundle, workload, store, run, say, loads)
    if not (args.no_trials or args.quick) or args.trials_only:
        count = sum(len(server.tried) for server in servers if len(server.tried) > 1)
        say(f"{run.run}: trials of settings, at most {count * _TRIAL_SECONDS / 60:.0f} minutes")
        comparison.try_settings(servers)
    if args.trials_only:
        return
    minutes = rounds * len(servers) * _ROUND_SECONDS[plan.name] * len(loads) / 4 / 60
    say(f"{run.run}: {rounds} x {len(servers)} servers, about {minutes:.0f} minutes")
    comparison.measure(servers, rounds)
    store.append(run.model_copy(update={"finished": now()}))
    say(f"stored; `python -m benchmarks.pages --store {args.store}` writes the page")


def new_run(plan: Plan, bundle: ServedBundle) -> Run:
    """A comparison that begins now."""
    command = shlex.join(["python", "-m", "benchmarks.peers", *sys.argv[1:]])
    return begin_run("peers", _plan_text(plan, bundle), command)


def find_unfinished(store: Store, plan: Plan, bundle: ServedBundle) -> Run:
    """The last comparison of this plan and bundle; what it holds is not measured again."""
    runs = [run for run in store.load().runs.values() if run.run.startswith("peers-")]
    same = [run for run in runs if run.plan == _plan_text(plan, bundle)]
    if not same:
        raise ConfigError("there is no comparison of this plan and bundle to resume")
    return same[-1].model_copy(update={"finished": None})


def _plan_text(plan: Plan, bundle: ServedBundle) -> str:
    return json.dumps({"peers": plan.values(), "bundle": bundle.digest})


def _speaker() -> Callable[[str], None]:
    began = time.monotonic()

    def say(line: str) -> None:
        spent = int(time.monotonic() - began)
        print(f"{spent // 60:3}:{spent % 60:02} {line}", file=sys.stderr, flush=True)

    return say


if __name__ == "__main__":
    sys.exit(main())
