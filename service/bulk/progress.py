"""How far a job is: a bar on a terminal, a line now and then in a log."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from tqdm import tqdm

_LINE_SECONDS = 30.0
_BAR = "{percentage:3.0f}%|{bar}| {desc} [{elapsed}<{remaining}]"


class Progress:
    """Advances by bytes of input, since a document takes as long as it is long."""

    def __init__(self, size: int, *, hidden: bool = False) -> None:
        self._size = max(1, size)
        self._hidden = hidden
        self._drawn = sys.stderr.isatty() and not hidden
        self._bar = tqdm(
            total=self._size, bar_format=_BAR, file=sys.stderr, disable=not self._drawn
        )
        self._first: int | None = None
        self._started = self._told = time.monotonic()
        self.documents = 0

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _error: object, _trace: TracebackType | None
    ) -> None:
        self._bar.close()
        if kind is None and not self._hidden and not self._drawn:
            self._tell(self._size)

    def advance(self, position: int) -> None:
        """One more document, which ends at this byte of the input."""
        self.documents += 1
        if self._first is None:  # a resumed job begins where the last one ended
            self._first = position
            self._bar.initial = self._bar.n = position
        if self._drawn:
            self._bar.set_description_str(self._done, refresh=False)
            self._bar.update(position - self._bar.n)
        elif not self._hidden and time.monotonic() - self._told > _LINE_SECONDS:
            self._tell(position)

    @property
    def _done(self) -> str:
        rate = self.documents / max(1e-9, time.monotonic() - self._started)
        return f"{self.documents:,} documents, {rate:,.1f}/s"

    def _tell(self, position: int) -> None:
        self._told = time.monotonic()
        first = self._first or 0
        share = (position - first) / max(1, self._size - first)
        left = (self._told - self._started) * (1 - share) / max(share, 1e-9)
        print(
            f"{position / self._size:4.0%}  {self._done}, {left:,.0f} s left",
            file=sys.stderr,
            flush=True,
        )
