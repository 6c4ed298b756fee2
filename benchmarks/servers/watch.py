"""Watching a server under load: the memory of all its processes, and what others did meanwhile."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

import psutil

from benchmarks.peers.process import family_of

_PAGE = os.sysconf("SC_PAGE_SIZE")
_SECONDS = 0.1  # between two looks
_FAMILY = 20  # looks between two searches for new processes


class Watch:
    """Looks at a server's processes ten times a second while a load is carried out.

    most_memory   the private pages of all its processes and the shared ones (libraries, shared
                  memory) of the process that has most of them: what several share counts once
    others_share  the share of all cores that neither the server nor this process used
    """

    def __init__(self, pid: int) -> None:
        self.most_memory = 0
        self.others_share = 0.0
        self._pid = pid
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Self:
        self._began = time.perf_counter(), _busy_seconds(), self._own_seconds()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        clock, busy, own = self._began
        spent = (time.perf_counter() - clock) * (os.cpu_count() or 1)
        others = _busy_seconds() - busy - (self._own_seconds() - own)
        self.others_share = min(1.0, max(0.0, others / spent))

    def _own_seconds(self) -> float:
        """Processor time of the server's processes and of this one."""
        seconds = time.process_time()
        for process in family_of(self._pid):
            with suppress(psutil.Error):
                times = process.cpu_times()
                seconds += times.user + times.system
        return seconds

    def _look(self) -> None:
        pids: list[int] = []
        looks = 0
        while True:
            if looks % _FAMILY == 0:
                pids = [process.pid for process in family_of(self._pid)]
            self.most_memory = max(self.most_memory, _held(pids))
            looks += 1
            if self._ended.wait(_SECONDS):
                return


def _held(pids: list[int]) -> int:
    private, shared = 0, 0
    for pid in pids:
        with suppress(OSError):
            _, resident, common, *_ = map(int, Path(f"/proc/{pid}/statm").read_text().split())
            private += resident - common
            shared = max(shared, common)
    return (private + shared) * _PAGE


def _busy_seconds() -> float:
    """Processor time that all cores have spent on anything, the hypervisor's included."""
    times = psutil.cpu_times()
    return float(
        sum(times[:3]) + sum(getattr(times, name, 0.0) for name in ("irq", "softirq", "steal"))
    )
