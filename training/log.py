"""What a run says while it works."""

from __future__ import annotations

import sys
import time


class Log:
    """Prints lines with the seconds since the start, above a progress bar if there is one."""

    def __init__(self) -> None:
        self._started = time.monotonic()

    def __call__(self, line: str) -> None:
        from tqdm import tqdm  # noqa: PLC0415 - knows of the bar that may be drawn

        tqdm.write(f"[{time.monotonic() - self._started:7.1f} s] {line}", file=sys.stdout)
        sys.stdout.flush()
