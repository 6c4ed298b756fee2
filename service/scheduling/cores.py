"""How many cores this process may use, and how urgent one of its threads is."""

from __future__ import annotations

import math
import os
import threading
from pathlib import Path

from models.machine import CGROUP, cpu_quota


def own_cores(cgroup: Path = CGROUP) -> tuple[int, ...]:
    """The numbers of the cores that this process may use for itself; none where that is unknown.

    A container with a quota below its number of cores shares them with others, and must be free
    to move from one to another.
    """
    affinity = getattr(os, "sched_getaffinity", None)
    cores = tuple(sorted(affinity(0))) if affinity else ()
    return cores if len(cores) == usable_cores(cgroup) else ()


def usable_cores(cgroup: Path = CGROUP) -> int:
    """Cores that the affinity mask and the container's quota leave to this process."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    quota = cpu_quota(cgroup)
    return cores if quota is None else max(1, min(cores, math.ceil(quota)))


def can_lower_priority() -> bool:
    """Whether the operating system gives each thread a priority of its own (Linux does)."""
    return hasattr(os, "setpriority") and hasattr(os, "sched_getaffinity")


def stay_on_core(core: int) -> None:
    """Keep the calling thread on one core, where its caches are."""
    os.sched_setaffinity(threading.get_native_id(), {core})


def lower_priority(by: int) -> None:
    """Make the calling thread less urgent than the rest of the process."""
    thread = threading.get_native_id()
    os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + by)
