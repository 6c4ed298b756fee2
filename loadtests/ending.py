"""Ending a process that we started."""

from __future__ import annotations

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
