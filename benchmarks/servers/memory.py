"""Resident memory of a process, by the kernel's own count."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")


def status_bytes(field: str, pid: int | str = "self") -> int:
    """A figure of /proc/PID/status in bytes: VmRSS, VmHWM (its peak), VmSize."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/{pid}/status has no {field}")


def forget_peak(pid: int | str = "self") -> None:
    """Let VmHWM start again from what the process holds now."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def held_together(pids: Iterable[int]) -> int:
    """Bytes of several processes: private pages, and the shared pages of the one with most.

    What the processes share (libraries, shared memory) counts once.
    """
    private, shared = 0, 0
    for pid in pids:
        with suppress(OSError):
            _, resident, common, *_ = map(int, Path(f"/proc/{pid}/statm").read_text().split())
            private += resident - common
            shared = max(shared, common)
    return (private + shared) * _PAGE
