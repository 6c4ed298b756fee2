"""Ending: processes that we started, and this one when it is told to."""

from __future__ import annotations

import signal
import subprocess
from typing import Any

_PATIENCE = 10.0  # seconds between asking and insisting


def end_process(process: subprocess.Popen[Any]) -> None:
    """Ask it to end, insist when it does not, and wait until it has."""
    process.terminate()
    try:
        process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def unwind_when_terminated() -> None:
    """Let SIGTERM do what Ctrl-C does: results are kept, and no process is left behind."""
    signal.signal(signal.SIGTERM, _interrupt)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
