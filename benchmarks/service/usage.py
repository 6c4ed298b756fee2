"""Who used the processor during a measurement: the server, the load generator, or others."""

from __future__ import annotations

import os
import time
from pathlib import Path

from benchmarks.service.servers import Running

_TICKS = os.sysconf("SC_CLK_TCK")


class Meter:
    """Counts from its making; `cores` tells how many cores each has used on average since."""

    def __init__(self, server: Running) -> None:
        self._server = server
        self._start = self._read()

    def cores(self) -> dict[str, float]:
        """Cores used by the server, by this process and by all others."""
        seconds, server, generator, busy = (
            now - before for now, before in zip(self._read(), self._start, strict=True)
        )
        used = {"server": server, "generator": generator, "others": busy - server - generator}
        return {name: max(0.0, value) / seconds for name, value in used.items()}

    def _read(self) -> tuple[float, float, float, float]:
        return (
            time.perf_counter(),
            _process_seconds(self._server.pid),
            time.process_time(),
            _machine_seconds(),
        )


def _process_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _machine_seconds() -> float:
    """Seconds that the cores were busy, all together; not idle and not waiting."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    ticks = [int(field) for field in fields]
    return (sum(ticks) - ticks[3] - ticks[4]) / _TICKS
