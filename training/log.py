"""What a run tells whoever watches."""

from __future__ import annotations

import sys
import time

from tqdm import tqdm


class Log:
    """Lines for whoever watches, with the time since the start."""

    def __init__(self) -> None:
        self._started = time.monotonic()

    def __call__(self, line: str) -> None:
        tqdm.write(f"[{time.monotonic() - self._started:7.1f} s] {line}", file=sys.stdout)
        sys.stdout.flush()
