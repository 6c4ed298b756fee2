"""What each mechanism of the service buys: the service with all of them, and without each.

`python -m benchmarks.ablation run` starts the service as shipped and once without each mechanism,
in turns, round by round, and stores every load. `report` prints the table from the store: what is
worth less than 3% under every load should go, with its setting.
"""

from __future__ import annotations

import argparse
import functools
import json
import random
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.environment import begin_run, now
from benchmarks.load.loops import get, post
from benchmarks.load.sending import Load, send, to_record
from benchmarks.load.summary import About
from benchmarks.markdown import table
from benchmarks.peers.workload import LETTERS, SHORT, TITLES, Plan, Workload
from benchmarks.quiet import undisturbed
from benchmarks.records import LoadTest, Run, percentile
from benchmarks.servers.bare_engine import measure_bare
from benchmarks.servers.bundle import ServedBundle, read_bundle
from benchmarks.servers.process import (
    ROOT,
    Running,
    StartError,
    free_port,
    measured_python,
    run_server,
    unwind_when_terminated,
)
from benchmarks.store import LOCAL, Store
from models.errors import ConfigError, LongdocError

SWEEP, AS_SHIPPED = "ablation", "as shipped"
_PLAN = Plan(
    "ablation", 4, 400, behind_seconds=5, bursts_seconds=4, alone=0, rest=0.5, settle=0
)  # fmt: skip
_LIMITED = ("fixed", "mixed", "behind")
_TRIES = 2  # of a load during which the host gave the cores to others


@dataclass(frozen=True)
class Arm:
    """The service without one mechanism.

    policy     fields of the scheduler's policy that differ
    name, new  what is replaced, as `module:name.name`, and an expression that may use the `old` one
    """

    without: str
    policy: Mapping[str, object] | None = None
    name: str = ""
    new: str = ""

    @property
    def program(self) -> str:
        """What the server's process runs: the change, then the service."""
        name, new = self.name, self.new
        if self.policy is not None:
            name = "service.startup.deployment:choose_policy"
            new = f"lambda *a, **k: dataclasses.replace(old(*a, **k), **{dict(self.policy)!r})"
        lines = ["import dataclasses, gc, sys, longdoc"]
        if name:
            module, _, path = name.partition(":")
            lines += [f"import {module} as m", f"old = m.{path}", f"m.{path} = {new}"]
        return "\n".join([*lines, "sys.exit(longdoc.main())"])


_RUNNING, _SERVE = "service.startup.deployment:Running.", "service.commands.serve:"

ARMS = (
    Arm(AS_SHIPPED),
    Arm("the shorter half first", {"short_first_share": 0.0}),
    Arm("only half: 0.7 first", {"short_first_share": 0.7}),
    Arm("priority classes", {"long_workers": 0}),
    Arm("a small priority step: 16", {"long_niceness": 16}),
    Arm("any priority step", {"long_niceness": 0}),
    Arm("the event loop above workers", {"niceness": 0}),
    Arm("workers on their cores", {"cores": ()}),
    Arm("batches", {"max_batch_size": 1}),
    Arm("all cores for a lone document", None, _RUNNING + "use_all_cores", "lambda self: None"),
    Arm("a session a core", None, _RUNNING + "separate_memory", "lambda self: None"),
    Arm("giving memory back", {"keep_memory_seconds": 1e9}),
    Arm(
        "results just before the next run",
        None,
        "service.scheduling.scheduler:Scheduler._run",
        "lambda self, worker, batch: (old(self, worker, batch), self._deliver(worker))",
    ),
    Arm("a rarer collector", None, _SERVE + "_keep_what_is_loaded", "gc.enable"),
    Arm("a short switch interval", None, _SERVE + "SWITCH_SECONDS", "0.005"),
    Arm(
        "tokenizing by tiktoken",
        None,
        "service.text.tokenizer:Reader.speed_up",
        "lambda self: None",
    ),
)


def main() -> int:
    """Measure or report."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ablation", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="measure every arm under every load, in turns")
    run.add_argument("--rounds", type=int, default=_PLAN.rounds, metavar="N")
    run.add_argument("--resume", action="store_true", help="go on with the last one")
    run.add_argument("--loads", default="abcd", help="some of the loads' letters [abcd]")
    run.add_argument("--only", metavar="WORDS", help="arms whose names contain one of these")
    run.add_argument("--bundle", type=Path)
    report = commands.add_parser("report", help="print the table as Markdown")
    report.add_argument("--run", help="the run's name [the last one]")
    for command in (run, report):
        command.add_argument("--store", type=Path, default=LOCAL, help=f"results file [{LOCAL}]")
    args = parser.parse_args()
    unwind_when_terminated()
    try:
        if args.command == "report":
            print(write_table(Store(args.store), args.run))
        else:
            _measure(args)
    except LongdocError as error:
        print(f"benchmarks.ablation: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def _measure(args: argparse.Namespace) -> None:
    bundle, store = read_bundle(args.bundle), Store(args.store)
    words = args.only.split(",") if args.only else [""]
    arms = [
        arm
        for arm in ARMS
        if arm.without == AS_SHIPPED or any(word.strip() in arm.without for word in words)
    ]
    loads = [name for name, letter in LETTERS.items() if letter in args.loads]
    plan = json.dumps({"ablation": _PLAN.values(), "bundle": bundle.digest})
    known = [run for run in store.load().runs.values() if run.plan == plan]
    if args.resume and not known:
        raise ConfigError("there is no ablation of this bundle to resume")
    command = shlex.join(["python", "-m", "benchmarks.ablation", *sys.argv[1:]])
    run = known[-1] if args.resume else begin_run(SWEEP, plan, command)
    store.append(run)
    print(f"{run.run}: {args.rounds} rounds of {len(arms)} arms", file=sys.stderr)
    Ablation(bundle, store, run, loads).measure(arms, args.rounds)
    store.append(run.model_copy(update={"finished": now()}))


class Ablation:
    """One ablation, whose records go to a store under one run."""

    def __init__(self, bundle: ServedBundle, store: Store, run: Run, loads: Sequence[str]) -> None:
        self.bundle, self.store, self.run, self.loads = bundle, store, run, loads
        self.workload = Workload(bundle.path, _PLAN, bundle.longest)

    def measure(self, arms: Sequence[Arm], rounds: int) -> None:
        """Every arm once a round, in another order each time; what the run holds is left out."""
        documents = {name: self.workload.documents(name) for name in _LIMITED}
        bare = measure_bare(self.bundle.path, documents)
        limits = {name: len(documents[name]) / found.seconds for name, found in bare.items()}
        done = {
            (test.settings["arm"], test.settings["round"], test.scenario)
            for _, test in self.store.load().load_tests
            if test.run == self.run.run
        }
        for number in range(1, rounds + 1):
            order = random.Random(number).sample(list(arms), len(arms))  # noqa: S311
            for arm in order:
                missing = [x for x in self.loads if (arm.without, number, x) not in done]
                if missing:
                    loads = [self.workload.load(name, number, limits) for name in missing]
                    self._measure_arm(arm, number, loads)

    def _measure_arm(self, arm: Arm, number: int, loads: Sequence[Load]) -> None:
        try:
            port = free_port()
            where = ["--bundle", str(self.bundle.path.resolve()), "--port", str(port)]
            program = [measured_python(), "-c", arm.program, "serve", "--log-level", "warning"]
            ready = get("/readyz")
            with run_server(arm.without, [*program, *where], port, ready, folder=ROOT) as running:
                send(running, self.workload.warm_up, self.workload.warm_up.requests(_request))
                for load in loads:
                    time.sleep(_PLAN.rest)
                    self._measure_load(arm, number, running, load)
        except StartError as error:
            print(f"{arm.without}: {error}", file=sys.stderr)

    def _measure_load(self, arm: Arm, number: int, running: Running, load: Load) -> None:
        taken = undisturbed(functools.partial(send, running, load, load.requests(_request)), _TRIES)
        others = round(taken.value.monitor.others_share, 3)
        about = About(
            run=self.run.run,
            sweep=SWEEP,
            scenario=load.name,
            info=self.bundle.info,
            settings={"arm": arm.without, "round": number, "others_share": others},
        )
        record, raw = to_record(load, taken.value, about)
        self.store.append(record, raw)
        print(
            f"{number} {arm.without:34} ({LETTERS[load.name]}) {record.answered_per_second:6.1f}/s "
            f"p50 {1e3 * (record.p50 or 0):6.1f} p99 {1e3 * (record.p99 or 0):6.0f} ms "
            f"others {others:.0%}",
            file=sys.stderr,
            flush=True,
        )


def _request(text: str) -> bytes:
    return post("/classify", {"input": text, "top_k": None})


def write_table(store: Store, name: str | None) -> str:
    """What each mechanism buys, in per cent: the service as shipped against without it.

    Each round compares with the same round as shipped; a cell is the median over the rounds, for
    times and memory how much less. «·» stands for less than 3%.
    """
    runs = [run for run in store.load().runs.values() if run.run.startswith(SWEEP)]
    chosen = name or (runs[-1].run if runs else None)
    cells: dict[tuple[str, str], dict[int, dict[str, float]]] = {}
    for number, test in store.load().load_tests:
        if test.run == chosen and test.requests:
            rounds = cells.setdefault((test.settings["arm"], test.scenario), {})
            rounds[test.settings["round"]] = _figures(store, number, test)
    if not cells:
        raise ConfigError(f"{store.path} holds no ablation")
    arms = dict.fromkeys(arm for arm, _ in cells if arm != AS_SHIPPED)
    loads = [load for load in TITLES if any(load == known for _, known in cells)]
    head = ["without", *(f"({LETTERS[load]}) rate, p50, p99, short, memory" for load in loads)]
    rows = []
    for arm in arms:
        gains = [_gains(cells.get((arm, x), {}), cells.get((AS_SHIPPED, x), {})) for x in loads]
        rows.append([arm, *gains])
    return table(head, rows)


def _figures(store: Store, number: int, test: LoadTest) -> dict[str, float]:
    raw = store.requests(number)
    assert raw is not None, "a load is stored with its requests"  # noqa: S101
    short = [s for s, n in zip(raw.seconds, raw.tokens, strict=True) if n < SHORT]
    return {
        "rate": test.answered_per_second,
        "p50": test.p50 or 0.0,
        "p99": test.p99 or 0.0,
        "short": percentile(short, 99) if short else 0.0,
        "memory": float(test.service_memory_bytes or 0),
    }


def _gains(without: Mapping[int, dict[str, float]], shipped: Mapping[int, dict[str, float]]) -> str:
    words = []
    for figure in ("rate", "p50", "p99", "short", "memory"):
        pairs = [
            (shipped[number][figure], values[figure])
            for number, values in without.items()
            if number in shipped and shipped[number][figure] and values[figure]
        ]
        if not pairs:
            words.append("–")
            continue
        ratio = median(ours / other for ours, other in pairs)
        gain = ratio - 1 if figure == "rate" else 1 - ratio
        words.append(f"{gain:+.0%}" if abs(gain) >= 0.03 else "·")
    return ", ".join(words)


if __name__ == "__main__":
    sys.exit(main())
