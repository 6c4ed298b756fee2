"""Runs side by side: as many processes as there are cores, each with one thread."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path

from training.arena.records import RunSpec, result_path, spec_path
from training.storage import save_json

_LOOK_EVERY = 0.5  # seconds


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def conduct(
    folder: Path,
    specs: Iterable[RunSpec],
    jobs: int,
    tell: Callable[[RunSpec, str | None], None],
) -> list[RunSpec]:
    """Do all runs; `tell` hears of each that ends, with its error if it failed. Failed runs return.

    When this process is interrupted, so are the runs; their states stay.
    """
    waiting = list(specs)[::-1]
    running: list[tuple[RunSpec, subprocess.Popen[bytes]]] = []
    failed = []
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                spec = waiting.pop()
                running.append((spec, _start(folder, spec)))
            time.sleep(_LOOK_EVERY)
            for spec, process in [each for each in running if each[1].poll() is not None]:
                running.remove((spec, process))
                error = _error(folder, spec, process.returncode)
                if error is not None:
                    failed.append(spec)
                tell(spec, error)
    finally:
        for _, process in running:
            process.terminate()
        for _, process in running:
            process.wait()
    return failed


def _start(folder: Path, spec: RunSpec) -> subprocess.Popen[bytes]:
    log = log_path(folder, spec)
    log.parent.mkdir(parents=True, exist_ok=True)
    save_json(spec_path(folder, spec.key), asdict(spec) | {"params": dict(spec.params)})
    command = [sys.executable, "-m", "training.arena.worker", str(folder), spec.key]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    with log.open("w", encoding="utf-8") as file:
        # The worker ends when its standard input does: with this process, however that ends.
        return subprocess.Popen(  # noqa: S603 - our own
            command, stdin=subprocess.PIPE, stderr=file, env=environment
        )


def log_path(folder: Path, spec: RunSpec) -> Path:
    """Where a run says what went wrong."""
    return folder / "logs" / f"{spec.key}.txt"


def _error(folder: Path, spec: RunSpec, code: int) -> str | None:
    """Why there is no result, in a line; None if there is one."""
    if code == 0 and result_path(folder, spec).exists():
        return None
    lines = log_path(folder, spec).read_text(encoding="utf-8").strip().splitlines()
    return lines[-1] if lines else f"ended with code {code}"
