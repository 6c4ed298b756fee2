"""Starts the service that is to be loaded, and ends it."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from benchmarks.servers.ending import end_process
from models.errors import LongdocError

_START_SECONDS = 300.0
_ROOT = Path(__file__).resolve().parent.parent


class ServiceError(LongdocError):
    """A service that did not start."""


@dataclass(frozen=True)
class Running:
    """A service that has said that it is ready."""

    address: str
    process: subprocess.Popen[str]
    start_seconds: float


@contextmanager
def run_service(settings: Mapping[str, str]) -> Iterator[Running]:
    """`longdoc serve` on a free port with these settings, from start to ready; ended at last."""
    command = [sys.executable, "-m", "longdoc", "serve", "--port", "0", "--log-level", "warning"]
    for name, value in settings.items():
        command += [f"--{name.replace('_', '-')}", value]
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(  # noqa: S603 - our own
            command, cwd=_ROOT, stdout=subprocess.PIPE, stderr=said, text=True,
            start_new_session=True,
        )  # fmt: skip
        try:
            address = _wait_for_address(process, said)
            yield Running(address, process, time.monotonic() - began)
        finally:
            end_process(process)
            if process.stdout:
                process.stdout.close()


def _wait_for_address(process: subprocess.Popen[str], said: IO[str]) -> str:
    """Read what it prints until it names its address; then let its other lines pass."""
    too_long = threading.Timer(_START_SECONDS, process.kill)
    too_long.start()
    try:
        for line in process.stdout or ():
            found = re.search(r"ready at (http://\S+)", line)
            if found:
                return found.group(1)
    finally:
        too_long.cancel()
    process.wait()
    said.seek(0)
    lines = [line.strip() for line in said if line.strip()]
    words = lines[-1].removeprefix("longdoc serve: ") if lines else f"code {process.returncode}"
    raise ServiceError(f"the service did not start: {words}")
