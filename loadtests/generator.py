"""Runs Locust in processes of its own, follows it, and brings its result home."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.load.samples import Sample, Usage
from benchmarks.load.summary import Outcome
from benchmarks.servers.process import end_process, free_port
from loadtests.plan import PROGRESS, RESULT, VARIABLE, Plan
from models.errors import LongdocError

Show = Callable[[dict[str, Any]], object]

MASTER_PORT = 5557
_ROOT = Path(__file__).resolve().parent.parent
_LOCUSTFILE = Path(__file__).resolve().parent / "locustfile.py"
_LOG = "locust.log"
_POLL = 0.2
_WORKERS_WAIT = 60


class GeneratorError(LongdocError):
    """A load generator that could not do its work."""


@dataclass(frozen=True)
class Placement:
    """Where the load comes from: numbers of workers here and on other machines."""

    here: int = 0
    elsewhere: int = 0
    port: int = 0

    @property
    def workers(self) -> int:
        """All of them; 0 when one process does all."""
        return self.here + self.elsewhere


def run_load(plan: Plan, placement: Placement, show: Show) -> Outcome:
    """Carry out a plan to its end; an interruption gives what there is so far."""
    with _locust(plan, placement, ["--headless"]) as (process, folder):
        try:
            _follow(process, folder, show)
        except KeyboardInterrupt:
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
        return _read_result(plan, folder, 1)


def run_web(plan: Plan, placement: Placement, host: str, port: int) -> Iterator[Outcome]:
    """Locust's page in the browser; gives the outcome of each load that was run from there."""
    options = ["--web-host", host, "--web-port", str(port)]
    with _locust(plan, placement, options) as (process, folder):
        number = 1
        try:
            while process.poll() is None:
                if (folder / RESULT.format(number)).exists():
                    yield _read_result(plan, folder, number)
                    number += 1
                time.sleep(_POLL)
        except KeyboardInterrupt:
            process.terminate()
            process.wait(15)
        if (folder / RESULT.format(number)).exists():
            yield _read_result(plan, folder, number)
        elif process.returncode not in (0, 1, -15):
            raise GeneratorError(_last_words(folder))


def run_worker(host: str, port: int) -> int:
    """Work for a master on another machine until it is done."""
    command = _command("--worker", "--master-host", host, "--master-port", str(port))
    with TemporaryDirectory(prefix="loadtest-") as folder:
        return subprocess.run(command, cwd=folder, env=_environment(), check=False).returncode  # noqa: S603


@contextmanager
def _locust(
    plan: Plan, placement: Placement, options: list[str]
) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """Locust's main process, with its workers; all ended whatever happens."""
    plan = plan.with_(workers=placement.workers)
    callers = max(1, placement.workers) if plan.model == "open" else plan.users
    options = [*options, "--users", str(callers), "--spawn-rate", str(callers)]
    options += ["--host", plan.address]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="loadtest-")))
        (folder / "plan.json").write_text(plan.to_json(), encoding="utf-8")
        log = stack.enter_context((folder / _LOG).open("wb"))

        def start(*arguments: str, **variables: str) -> subprocess.Popen[bytes]:
            process = subprocess.Popen(  # noqa: S603 - our own
                _command(*arguments),
                cwd=folder,
                env=_environment() | variables,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # an interruption is ours to hand on
            )
            stack.callback(end_process, process)
            return process

        if placement.workers:
            port = placement.port or (MASTER_PORT if placement.elsewhere else free_port())
            bind = "*" if placement.elsewhere else "127.0.0.1"
            options += ["--master", "--master-bind-host", bind, "--master-bind-port", str(port)]
            options += ["--expect-workers", str(placement.workers)]
            options += ["--expect-workers-max-wait", str(_WORKERS_WAIT)]
            for _ in range(placement.here):
                start("--worker", "--master-host", "127.0.0.1", "--master-port", str(port))
        yield start(*options, **{VARIABLE: str(folder / "plan.json")}), folder


def _command(*arguments: str) -> list[str]:
    quiet = ("--loglevel", "WARNING")
    return [sys.executable, "-m", "locust", "-f", str(_LOCUSTFILE), *quiet, *arguments]


def _environment() -> dict[str, str]:
    """Ours, without Locust's own variables, and with this project to be found."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LOCUST_")}
    path = os.pathsep.join([str(_ROOT), *filter(None, [kept.get("PYTHONPATH")])])
    return kept | {"PYTHONPATH": path}


def _follow(process: subprocess.Popen[bytes], folder: Path, show: Show) -> None:
    shown = 0.0
    while process.poll() is None:
        time.sleep(_POLL)
        try:
            path = folder / PROGRESS
            changed = path.stat().st_mtime
            if changed > shown:
                shown = changed
                show(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError):
            continue


def _read_result(plan: Plan, folder: Path, number: int) -> Outcome:
    try:
        found = json.loads((folder / RESULT.format(number)).read_text(encoding="utf-8"))
    except OSError:
        raise GeneratorError(_last_words(folder)) from None
    found["samples"] = [Sample(*row) for row in found["samples"]]
    found["memory"] = [(at, held) for at, held in found["memory"]]
    found["usages"] = [Usage(cpu, wall, tuple(slept)) for cpu, wall, slept in found["usages"]]
    return Outcome(model=plan.model, warm_up=plan.warm_up, **found)


def _last_words(folder: Path) -> str:
    lines = (folder / _LOG).read_text(encoding="utf-8", errors="replace").splitlines()
    said = [line.strip() for line in lines if line.strip()]
    words = said[-1][:300] if said else "it said nothing"
    return f"the load generator ended without a result: {words}"
