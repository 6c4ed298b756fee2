"""Limits that a container sets. Free of torch and NumPy."""

from __future__ import annotations

from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")


def cpu_quota(cgroup: Path = CGROUP) -> float | None:
    """The container's limit in cores (control groups version 2, then 1), or None."""
    try:
        if (cgroup / "cpu.max").exists():
            allowed, period = (cgroup / "cpu.max").read_text().split()
        else:
            allowed = (cgroup / "cpu" / "cpu.cfs_quota_us").read_text()
            period = (cgroup / "cpu" / "cpu.cfs_period_us").read_text()
        return int(allowed) / int(period) if int(allowed) > 0 else None
    except (OSError, ValueError):  # no control group, or its limit is the word "max"
        return None
