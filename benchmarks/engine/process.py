"""A worker process, and the lines of JSON exchanged with it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.engine.plan import Configuration

_ROOT = Path(__file__).resolve().parent.parent.parent


class WorkerError(Exception):
    """A worker that ended before it answered; the message is the last line it printed."""


class Worker:
    """A fresh process that measures one configuration."""

    def __init__(self, configuration: Configuration, bundle: Path, memory_limit: int) -> None:
        wanted = {
            "bundle": str(bundle.resolve()),
            "engine": configuration.engine,
            "device": configuration.device,
            "precision": configuration.precision,
            "threads": configuration.threads,
            "length": configuration.length,
            "batch": configuration.batch,
            "memory_limit": memory_limit,
        }
        self._process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", "benchmarks.engine.worker", json.dumps(wanted)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=_ROOT,
        )

    def first_run(self) -> dict[str, Any]:
        """Wait for the first run; what it took in memory and time."""
        return self._answer()

    def time(self, runs: int) -> list[float]:
        """The seconds of each of `runs` runs."""
        stdin = self._process.stdin
        try:
            if stdin is not None:
                stdin.write(f"{runs}\n")
                stdin.flush()
        except BrokenPipeError:
            raise WorkerError(self._last_line()) from None
        seconds: list[float] = self._answer()["seconds"]
        return seconds

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()

    def _answer(self) -> dict[str, Any]:
        line = self._process.stdout.readline() if self._process.stdout else ""
        if not line:
            raise WorkerError(self._last_line())
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _last_line(self) -> str:
        _, errors = self._process.communicate()
        lines = [line for line in errors.splitlines() if line.strip()]
        code = self._process.returncode
        return lines[-1][:300] if lines else f"the process ended with exit code {code}"
