"""`longdoc bench`: measure time and memory against length; `longdoc bench export`: hand it out."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from dataclasses import replace
from pathlib import Path

from benchmarks.engine.networks import SERIES, Networks
from benchmarks.engine.plan import QUICK, Configuration, Plan
from benchmarks.engine.runner import Runner
from benchmarks.engine.table import summary_table
from benchmarks.environment import begin_run, describe_environment, now
from benchmarks.records import Measurement, Run
from benchmarks.store import LOCAL, Store
from models.bundle import ROOT
from models.errors import ConfigError
from models.extras import require
from models.progress import ProgressBar

_START_SECONDS = 2.0  # what a fresh process costs, for the progress bar


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--attention", metavar="NAMES", help="all, or names by commas")
    parser.add_argument("--engine", metavar="NAMES", help="onnxruntime, torch or both, by commas")
    parser.add_argument("--precision", metavar="NAMES", help="fp32, fp16, int8, by commas")
    parser.add_argument("--lengths", metavar="TOKENS", help="lengths by commas")
    parser.add_argument("--batch", metavar="SIZES", help="batch sizes by commas")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="where it runs [cpu]")
    parser.add_argument("--threads", type=int, metavar="N", help="threads of a run [1]")
    parser.add_argument("--rounds", type=int, metavar="N", help="interleaved rounds")
    parser.add_argument(
        "--max-seconds", type=float, metavar="S", help="leave out what takes longer per run"
    )
    parser.add_argument("--quick", action="store_true", help="a first look, under two minutes")
    parser.add_argument(
        "--fresh", action="store_true", help="do not go on with an interrupted run of this plan"
    )
    parser.add_argument("--dataset", default="elife", help="whose bundles to measure [elife]")
    parser.add_argument("--bundles", type=Path, default=ROOT, help="folder of bundles")
    parser.add_argument(
        "--made", type=Path, default=LOCAL.parent / "networks", help="where random ones are kept"
    )
    parser.add_argument("--store", type=Path, default=LOCAL, help=f"results file [{LOCAL}]")
    actions = parser.add_subparsers(metavar="export", dest="action")
    export = actions.add_parser("export", help="write the results as CSV, Parquet or JSON")
    export.add_argument("--format", choices=("csv", "parquet", "json"), default="csv")
    export.add_argument("--out", type=Path, required=True, help="file to write")
    export.add_argument("--store", type=Path, default=LOCAL, help=f"results file [{LOCAL}]")


def run(args: argparse.Namespace) -> int:
    """Measure, or export what was measured."""
    if args.action == "export":
        from benchmarks.engine.exporting import export_results  # noqa: PLC0415

        return export_results(Store(args.store), args.format, args.out)
    require("torch", "longdoc bench")  # networks with random weights are exported
    plan = make_plan(args)
    store = Store(args.store)
    started = time.monotonic()
    current, done = _begin(plan, store, args.fresh)
    work = sum(_work_of(plan, Configuration.of(record)) for record in done)
    with ProgressBar("measuring", _work(plan), "predicted second", done=work) as bar:

        def progress(configuration: Configuration) -> None:
            bar.note(f"{configuration.length:,} {configuration.attention}")
            bar.add(_work_of(plan, configuration))

        networks = Networks(args.bundles, args.dataset, args.made, bar.write)
        kept = list(done)

        def keep(record: Measurement) -> None:
            store.append(record)
            kept.append(record)

        Runner(plan, current.run, networks, keep=keep, progress=progress).measure(done)
    store.append(current.model_copy(update={"finished": now()}))
    print(summary_table(kept))
    print(f"{len(kept)} records in {args.store}, {time.monotonic() - started:.0f} s")
    return 0


def make_plan(args: argparse.Namespace) -> Plan:
    """The plan that the options ask for."""
    plan = QUICK if args.quick else Plan()
    lists = (
        ("attentions", args.attention, SERIES),
        ("engines", args.engine, ("onnxruntime", "torch")),
        ("precisions", args.precision, ("fp32", "fp16", "int8")),
    )
    for name, given, known in lists:
        if given is not None and given != "all":
            names = tuple(dict.fromkeys(part.strip() for part in given.split(",")))
            unknown = [n for n in names if n not in known]
            if unknown:
                raise ConfigError(f"unknown {unknown[0]!r}; known: {', '.join(known)}")
            plan = replace(plan, **{name: names})  # type: ignore[arg-type]
        elif given == "all":
            plan = replace(plan, **{name: known})  # type: ignore[arg-type]
    numbers = (("lengths", args.lengths, 1 << 20), ("batches", args.batch, 1024))
    for name, given, most in numbers:
        if given is not None:
            plan = replace(plan, **{name: _numbers(name, given, most)})  # type: ignore[arg-type]
    for name in ("device", "threads", "rounds", "max_seconds"):
        value = getattr(args, name)
        if value is not None:
            if name != "device" and value <= 0:
                raise ConfigError(f"--{name.replace('_', '-')} must be above 0; got {value}")
            plan = replace(plan, **{name: value})
    return plan


def _numbers(name: str, given: str, most: int) -> tuple[int, ...]:
    parts = [part.strip() for part in given.split(",")]
    if not all(part.isdecimal() and 1 <= int(part) <= most for part in parts):
        raise ConfigError(f"{name} must be whole numbers from 1 to {most:,}; got {given!r}")
    return tuple(dict.fromkeys(int(part) for part in parts))


def _begin(plan: Plan, store: Store, fresh: bool) -> tuple[Run, list[Measurement]]:
    """An interrupted run of the same plan and environment with its records, or a new run."""
    environment = describe_environment()
    loaded = store.load()
    for problem in loaded.problems:
        print(f"passed over: {problem}", file=sys.stderr)
    for run in reversed(loaded.runs.values()):
        same = run.plan == plan.fingerprint() and run.environment == environment
        if same and run.finished is None and not fresh:
            done = [m for m in loaded.measurements if m.run == run.run]
            print(f"going on with run {run.run}: {len(done)} records are there", file=sys.stderr)
            return run, done
    run = begin_run("", plan.fingerprint(), shlex.join(["longdoc", *sys.argv[1:]]))
    if run.busy:
        print(f"others use {run.load_before:g} of this machine's cores: times are good for ratios "
              "only, and the records say so", file=sys.stderr)  # fmt: skip
    store.append(run)
    return run, []


def _work(plan: Plan) -> float:
    return sum(_work_of(plan, c) for group in plan.groups() for c in group)


def _work_of(plan: Plan, configuration: Configuration) -> float:
    return _START_SECONDS + max(plan.budget, (plan.rounds + 1) * configuration.rough_seconds)
