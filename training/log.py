"""What a run tells whoever watches."""

from __future__ import annotations

import time


class Log:
    """Lines for whoever watches, with the time since the start."""

    def __init__(self) -> None:
        self._started = time.monotonic()

    def __call__(self, line: str) -> None:
        print(f"[{time.monotonic() - self._started:7.1f} s] {line}", flush=True)
