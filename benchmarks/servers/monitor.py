"""Memory of a server's processes during a load, and which programs used the processor."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from typing import Self

import psutil

from benchmarks.servers.memory import held_together
from benchmarks.servers.process import family_of

_SECONDS = 0.1  # between two samples
_FAMILY = 20  # samples between two searches for new processes


class Monitor:
    """Samples a server's memory ten times a second while a load is sent.

    idle, most   bytes that all its processes held at the start, and the most at any sample
    held         (seconds since the start, bytes)
    cores        cores used on average by the server, the generator (this process) and others
    """

    def __init__(self, pid: int) -> None:
        self.held: list[tuple[float, int]] = []
        self.cores: dict[str, float] = {}
        self._pid = pid
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Self:
        self._began = time.perf_counter(), self._seconds()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        clock, before = self._began
        spent = time.perf_counter() - clock
        server, generator, busy = (
            max(0.0, now - then) / spent for now, then in zip(self._seconds(), before, strict=True)
        )
        others = max(0.0, busy - server - generator)
        self.cores = {"server": server, "generator": generator, "others": others}

    @property
    def idle(self) -> int:
        """Bytes held when the load began."""
        return self.held[0][1]

    @property
    def most(self) -> int:
        """The most bytes held at any sample."""
        return max(held for _, held in self.held)

    @property
    def others_share(self) -> float:
        """The share of all cores that other programs used."""
        return min(1.0, self.cores["others"] / (os.cpu_count() or 1))

    def _seconds(self) -> tuple[float, float, float]:
        """Processor seconds so far: of the server, of this process, of the whole machine."""
        server = 0.0
        for process in family_of(self._pid):
            with suppress(psutil.Error):
                times = process.cpu_times()
                server += times.user + times.system
        times = psutil.cpu_times()
        kinds = ("user", "nice", "system", "irq", "softirq", "steal")
        busy = sum(getattr(times, kind, 0.0) for kind in kinds)
        return server, time.process_time(), busy

    def _sample(self) -> None:
        pids: list[int] = []
        began = time.perf_counter()
        while True:
            if len(self.held) % _FAMILY == 0:
                pids = [process.pid for process in family_of(self._pid)]
            self.held.append((round(time.perf_counter() - began, 3), held_together(pids)))
            if self._ended.wait(_SECONDS):
                return


def held_by(pid: int) -> int:
    """Bytes that a server's processes hold now."""
    return held_together(process.pid for process in family_of(pid))
