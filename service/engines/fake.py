"""An engine that only takes as long as it is told: for tests of everything around it."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from service.engines.base import Engine, EngineInfo, Floats, Ids, Output


class FakeEngine(Engine):
    """Answers from a document's own ids alone, after a time that the caller sets.

    `seconds` maps (batch, padded length) to the time a run takes; `fail` is raised instead of
    an answer while it is set. Every run is noted in `runs` as its documents' lengths.
    """

    def __init__(
        self,
        labels: int = 2,
        seconds: Callable[[int, int], float] = lambda _batch, _n: 0.0,
    ) -> None:
        self.info = EngineInfo("fake", "cpu", "FakeProvider", "fp32", 1, "asked for by a test")
        self.labels = labels
        self.seconds = seconds
        self.fail: Exception | None = None
        self.runs: list[list[int]] = []
        self.shrunk = 0
        self.closed = False

    def run(self, ids: Ids, lengths: Ids, *, contributions: bool = False) -> Output:
        """Sleep as told, then give each token a contribution that depends on its id alone."""
        self.runs.append([int(length) for length in lengths])
        time.sleep(self.seconds(ids.shape[0], ids.shape[1]))
        if self.fail is not None:
            raise self.fail
        real = np.arange(ids.shape[1])[None, :] < lengths[:, None]  # (batch, n)
        classes = np.arange(1, self.labels + 1)
        per_token: Floats = np.sin(ids[:, :, None] * classes).astype(np.float32)
        per_token *= real[:, :, None] / np.maximum(lengths, 1)[:, None, None]
        per_token = per_token.astype(np.float32)  # (batch, n, labels)
        return Output(per_token.sum(axis=1, dtype=np.float32), per_token if contributions else None)

    def shrink(self) -> None:
        """Count how often."""
        self.shrunk += 1

    def close(self) -> None:
        """Remember that it was closed."""
        self.closed = True
