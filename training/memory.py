"""Memory that may be used here, as the system says."""

from __future__ import annotations

from pathlib import Path

_UNKNOWN = 4 << 30  # where the system does not say


def available_memory() -> int:
    """Bytes that are free for this process, also inside a container."""
    free = _free()
    limit, used = (
        _number(Path("/sys/fs/cgroup") / name) for name in ("memory.max", "memory.current")
    )
    return free if limit is None or used is None else max(0, min(free, limit - used))


def _free() -> int:
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    except OSError:
        pass
    return _UNKNOWN


def _number(path: Path) -> int | None:
    try:
        text = path.read_text(encoding="ascii").strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
