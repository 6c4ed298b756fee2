"""How much memory the service holds: from the system when it runs here, else from its metrics."""

from __future__ import annotations

from contextlib import suppress

from benchmarks.servers.memory import forget_peak, status_bytes
from loadtests.service_client import ServiceClient, ServiceClientError


class ServiceMemory:
    """Reads the service's memory and remembers the most that was seen."""

    def __init__(self, client: ServiceClient, pid: int | None) -> None:
        self._client = client
        self._pid = pid
        self._most: int | None = None
        self._system_counts = False

    def forget_peak(self) -> None:
        """Start the peak again: the system's own count, or else the most that is read."""
        self._most = None
        self._system_counts = False
        if self._pid is not None:
            with suppress(OSError):  # only Linux keeps a count
                forget_peak(self._pid)
                self._system_counts = True

    def now(self) -> int | None:
        """Bytes held now, or None when neither the system nor the service says."""
        held = self._read()
        if held is not None:
            self._most = max(held, self._most or 0)
        return held

    def peak(self) -> int | None:
        """The most since `forget_peak`: by the system's own count where it keeps one."""
        if self._system_counts and self._pid is not None:
            with suppress(OSError):  # it has ended
                return max(status_bytes("VmHWM", self._pid), self._most or 0)
        return self._most

    def _read(self) -> int | None:
        try:
            if self._pid is not None:
                return status_bytes("VmRSS", self._pid)
            return self._client.memory()
        except (OSError, ServiceClientError):
            return None
