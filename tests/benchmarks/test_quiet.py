"""Measuring again what was measured while the host gave the cores to others."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.quiet import cores_in_use, undisturbed


def machine(stat: Path, stolen: list[int]) -> Callable[[], int]:
    """A measurement that takes 100 ticks, of which so many are stolen each time."""
    busy = taken = 0

    def write() -> None:
        stat.write_text(f"cpu  {busy} 0 0 500 0 0 0 {taken} 0 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n")

    def measure() -> int:
        nonlocal busy, taken
        now = stolen.pop(0)
        busy, taken = busy + 100 - now, taken + now
        write()
        return now

    write()
    return measure


@pytest.mark.parametrize(
    ("stolen", "kept", "tries"),
    [
        ([0], 0, 1),
        ([3], 3, 1),
        ([20, 2], 2, 2),
        ([20, 30, 9, 15], 9, 4),
    ],
)
def test_the_least_disturbed_try_counts(
    tmp_path: Path, stolen: list[int], kept: int, tries: int
) -> None:
    stat = tmp_path / "stat"
    taken = undisturbed(machine(stat, list(stolen)), stat=stat)
    assert (taken.value, taken.tries) == (kept, tries)
    assert taken.stolen == pytest.approx(kept / 100)


def test_what_cannot_be_measured_again_is_not(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    taken = undisturbed(machine(stat, [20, 0]), can_again=lambda: False, stat=stat)
    assert (taken.value, taken.tries) == (20, 1)


def test_a_system_that_does_not_tell_is_measured_once(tmp_path: Path) -> None:
    taken = undisturbed(lambda: "value", stat=tmp_path / "missing")
    assert (taken.value, taken.stolen, taken.tries) == ("value", 0.0, 1)


def test_what_others_use_is_seen_as_it_is_now(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu  1000 0 0 500 0 0 0 0 0 0\n")
    assert cores_in_use(stat) == 0.0  # whatever went on before
    change = threading.Timer(0.1, stat.write_text, ["cpu  1010 0 5 550 25 0 0 10 0 0\n"])
    change.start()
    assert cores_in_use(stat) == pytest.approx(0.25 * (os.cpu_count() or 1), abs=0.01)
    change.join()
    assert cores_in_use(tmp_path / "missing") >= 0
