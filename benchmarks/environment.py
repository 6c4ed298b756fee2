"""This machine, its limits and the versions in use: stored with every figure."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks.quiet import cores_in_use
from benchmarks.records import Environment, Run
from models.machine import CGROUP, cpu_quota

_PACKAGES = ("longdoc", "numpy", "onnxruntime", "onnxruntime-gpu", "torch", "tokenizers")
_ROOT = Path(__file__).resolve().parent.parent


def now() -> str:
    """The moment, as records have it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def begin_run(
    prefix: str,
    plan: str,
    command: str,
    *,
    load_before: float | None = None,
    versions: Mapping[str, str] | None = None,
) -> Run:
    """A run that starts now on this machine, named by its prefix, moment and plan."""
    started = now()
    machine = describe_environment()
    digest = hashlib.sha256(plan.encode()).hexdigest()[:6]
    return Run(
        run="-".join(filter(None, [prefix, started[:19].replace(":", ""), digest])),
        started=started,
        finished=None,
        command=command,
        plan=plan,
        environment=machine.model_copy(
            update={"versions": machine.versions | dict(versions or {})}
        ),
        load_before=cores_in_use() if load_before is None else load_before,
    )


def describe_environment() -> Environment:
    """This machine, its limits, and the versions in use."""
    return Environment(
        cpu=_cpu(),
        cores=_cores(),
        memory_bytes=_memory("MemTotal") or 0,
        gpu=_gpu(),
        container_cores=cpu_quota(),
        container_memory_bytes=_container_number("memory.max", "memory/memory.limit_in_bytes"),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        versions={"python": platform.python_version(), **_versions()},
        commit=_commit(),
    )


def available_memory() -> int:
    """Bytes that a process may still take, by the machine and by the container's limit."""
    free = _memory("MemAvailable") or 4 << 30
    limit = _container_number("memory.max", "memory/memory.limit_in_bytes")
    used = _container_number("memory.current", "memory/memory.usage_in_bytes")
    if limit is not None and used is not None:
        free = min(free, max(0, limit - used))
    return free


def _cpu() -> str:
    for line in _read(Path("/proc/cpuinfo")).splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine() or "unknown"


def _cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def _memory(field: str) -> int | None:
    for line in _read(Path("/proc/meminfo")).splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    return None


def _gpu() -> str | None:
    query = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"]
    return _first_line(query)


def _commit() -> str | None:
    commit = _first_line(["git", "-C", str(_ROOT), "rev-parse", "HEAD"])
    if commit is None:
        return None
    code = ["--", ".", ":!benchmarks/results.sqlite"]  # measuring itself may change the store
    changed = _first_line(["git", "-C", str(_ROOT), "status", "--porcelain", "-uno", *code])
    return commit + (" with changes" if changed else "")


def _first_line(command: list[str]) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return None
    return next(iter(done.stdout.splitlines()), None)


def _container_number(*names: str) -> int | None:
    """A control group's figure (version 2's file, then version 1's); None when unlimited."""
    for name in names:
        text = _read(CGROUP / name).strip()
        if text.isdigit() and int(text) < 1 << 60:
            return int(text)
    return None


def _versions() -> dict[str, str]:
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
