"""How much memory the service holds: from the system when it runs here, else from its metrics."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import psutil

from loadtests.target import Target, TargetError


class ServiceMemory:
    """Reads the service's memory, and remembers the most that was seen."""

    def __init__(self, target: Target, pid: int | None) -> None:
        self._target = target
        self._pid = pid
        self._most: int | None = None
        self._system_counts = False

    def forget_peak(self) -> None:
        """Let the peak begin anew: by the system, or else of what is read from now on."""
        self._most = None
        self._system_counts = False
        if self._pid is not None:
            with suppress(OSError):  # no such thing here
                Path(f"/proc/{self._pid}/clear_refs").write_text("5")
                self._system_counts = True

    def now(self) -> int | None:
        """Bytes held now, or None when nobody tells."""
        held = self._read()
        if held is not None:
            self._most = max(held, self._most or 0)
        return held

    def peak(self) -> int | None:
        """The most since `forget_peak`: by the system's own count where it keeps one."""
        if self._system_counts:
            with suppress(OSError):  # it has ended
                for line in Path(f"/proc/{self._pid}/status").read_text().splitlines():
                    if line.startswith("VmHWM:"):
                        return max(int(line.split()[1]) * 1024, self._most or 0)
        return self._most

    def _read(self) -> int | None:
        try:
            if self._pid is not None:
                return int(psutil.Process(self._pid).memory_info().rss)
            return self._target.memory()
        except (psutil.Error, TargetError):
            return None
