"""Progress of long work: a bar on a terminal, a line now and then in a log."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from typing import Self

_FIRST_LINE, _NEXT_LINES = 5.0, 30.0  # seconds


class ProgressBar:
    """Shows how much of `total` is done and how long the rest will take.

    On a terminal this is tqdm's bar on standard error. Elsewhere `say` gets a line after five
    seconds and then every half minute; without `say` it goes to standard error. Work that ends
    sooner leaves no line.

        with ProgressBar("reading", total=len(files), unit="file") as progress:
            for file in files:
                read(file)
                progress.add(1)
    """

    def __init__(
        self,
        title: str,
        total: float,
        unit: str,
        *,
        done: float = 0,
        say: Callable[[str], None] | None = None,
        hidden: bool = False,
    ) -> None:
        from tqdm import tqdm  # noqa: PLC0415 - takes as long to load as short commands take

        self._title, self._total, self._unit = title, total, unit
        self._first = self._done = done
        self._say = say or _to_standard_error
        self._hidden = hidden
        size = shutil.get_terminal_size()  # tqdm draws nothing where the system says 0 by 0
        self._bar = (
            tqdm(
                desc=title,
                total=total,
                initial=done,
                unit=unit,
                unit_scale=total >= 10_000,
                ncols=size.columns,
                nrows=size.lines,
                smoothing=0.1,
            )
            if on_terminal() and not hidden
            else None
        )
        self._started = time.monotonic()
        self._due = self._started + _FIRST_LINE

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the bar as it is."""
        if self._bar is not None:
            self._bar.close()

    def add(self, amount: float) -> None:
        """So much more is done."""
        self._done += amount
        if self._bar is not None:
            self._bar.update(amount)
        elif not self._hidden and time.monotonic() >= self._due:
            self._due = time.monotonic() + _NEXT_LINES
            self._say(self.line())

    def note(self, text: str) -> None:
        """Show what is being worked on now, beside the bar."""
        if self._bar is not None:
            self._bar.set_postfix_str(text, refresh=False)

    def write(self, text: str) -> None:
        """Print a line of results on standard output without breaking the bar."""
        if self._bar is None:
            print(text)
        else:
            self._bar.write(text, file=sys.stdout)

    def line(self) -> str:
        """How far it is, as a log has it: `training: 34% of 1,200,000 tokens, 95 s left`."""
        share = min(1.0, self._done / self._total) if self._total else 1.0
        head = f"{self._title}: {share:.0%} of {self._total:,.0f} {self._unit}s"
        gained = self._done - self._first
        if gained <= 0:
            return head
        left = (self._total - self._done) * (time.monotonic() - self._started) / gained
        return f"{head}, {duration(left)} left"


def on_terminal() -> bool:
    """Whether a person watches standard error."""
    return sys.stderr is not None and sys.stderr.isatty()


def duration(seconds: float) -> str:
    """Seconds as people say them: `40 s`, `12 min`, `3 h 20 min`."""
    seconds = max(0, round(seconds))
    if seconds < 120:
        return f"{seconds} s"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"


def _to_standard_error(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
