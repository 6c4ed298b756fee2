"""What a log hears of long work, and when."""

from __future__ import annotations

import pytest

from models import progress
from models.progress import ProgressBar, duration


class Clock:
    """Time that passes when the test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    monkeypatch.setattr(progress, "on_terminal", lambda: False)
    return clock


def test_a_log_gets_a_line_after_five_seconds_and_then_every_half_minute(clock: Clock) -> None:
    said: list[tuple[float, str]] = []
    with ProgressBar(
        "reading", 200, "file", say=lambda line: said.append((clock.now, line))
    ) as bar:
        for _ in range(100):
            clock.now += 1.0
            bar.add(1)
    assert [at - 100 for at, _ in said] == [5, 35, 65, 95]
    assert said[0][1] == "reading: 2% of 200 files, 3 min left"
    assert said[3][1] == "reading: 48% of 200 files, 105 s left"


def test_work_that_ends_sooner_leaves_no_line(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with ProgressBar("reading", 4, "file") as bar:
        for _ in range(4):
            clock.now += 1.0
            bar.add(1)
    assert capsys.readouterr().err == ""


def test_what_an_earlier_run_did_is_not_counted_as_speed(clock: Clock) -> None:
    bar = ProgressBar("reading", 100, "file", done=90)
    clock.now += 10.0
    bar.add(5)
    assert bar.line() == "reading: 95% of 100 files, 10 s left"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(-1, "0 s"), (0.4, "0 s"), (119.4, "119 s"), (120, "2 min"), (7199, "2 h 0 min")],
)
def test_a_duration_is_rounded_as_people_do(seconds: float, words: str) -> None:
    assert duration(seconds) == words
