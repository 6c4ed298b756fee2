"""`python -m benchmarks.service [MEASURE …]`: measure the service and store the samples."""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from benchmarks.environment import begin_run, now
from benchmarks.servers.bundle import read_bundle
from benchmarks.servers.process import measured_python, unwind_when_terminated
from benchmarks.service.measures import FULL, MEASURES, QUICK, Measurements
from benchmarks.store import LOCAL, Store
from models.errors import LongdocError


def main() -> int:
    """Take the measures named, or all, each as a run of its own."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.service", description=__doc__)
    add = parser.add_argument
    add("measures", nargs="*", metavar="MEASURE", help=f"some of {', '.join(MEASURES)} [all]")
    add("--quick", action="store_true", help="a short look: does it all work?")
    add("--bundle", type=Path, help="the bundle to serve")
    add("--store", type=Path, default=LOCAL, metavar="FILE", help=f"results file [{LOCAL}]")
    args = parser.parse_args()
    unknown = [name for name in args.measures if name not in MEASURES]
    if unknown:
        parser.error(f"unknown {unknown[0]!r}; known: {', '.join(MEASURES)}")
    unwind_when_terminated()
    plan = QUICK if args.quick else FULL
    command = shlex.join(["python", "-m", "benchmarks.service", *sys.argv[1:]])
    script = "import platform; print(platform.python_version())"
    said = subprocess.run([measured_python(), "-c", script], capture_output=True, check=True)  # noqa: S603
    versions = {"python": said.stdout.decode().strip()}
    try:
        bundle, store = read_bundle(args.bundle), Store(args.store)
        for name in args.measures or MEASURES:
            run = begin_run(f"service-{name}", str(asdict(plan)), command, versions=versions)
            store.append(run)
            _say(f"{name} ({run.load_before:g} cores in use by others before)")
            MEASURES[name](Measurements(bundle, plan, store, run.run, _say))
            store.append(run.model_copy(update={"finished": now()}))
    except LongdocError as error:
        _say(f"benchmarks.service: {error}")
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
