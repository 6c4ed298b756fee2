"""How many cores there are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from service.scheduling.cores import usable_cores


@pytest.mark.parametrize(
    ("content", "limit"),
    [("max 100000", None), ("100000 100000", 1), ("150000 100000", 2), ("broken", None)],
)
def test_the_containers_quota_bounds_the_cores(
    tmp_path: Path, content: str, limit: int | None
) -> None:
    (tmp_path / "cpu.max").write_text(content + "\n")
    available = len(os.sched_getaffinity(0))
    assert usable_cores(tmp_path) == (available if limit is None else min(available, limit))


def test_the_older_control_group_counts_too(tmp_path: Path) -> None:
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("50000\n")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert usable_cores(tmp_path) == 1
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("-1\n")
    assert usable_cores(tmp_path) == len(os.sched_getaffinity(0))
