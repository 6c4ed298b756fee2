"""An engine that answers from the ids alone, after a set time, for tests of what is around it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from models.config import ModelConfig
from service.clock import Clock
from service.engines.base import Engine, EngineInfo, Floats, Ids, Output, check_batch

_ANY_ID = 1 << 40  # size of the vocabulary


class FakeEngine(Engine):
    """Answers from a document's own ids alone, after a time that the caller sets.

    `seconds` maps (batch, padded length) to the time a run takes; `fail` is raised instead of an
    answer while it is set. Every run is noted in `runs` as its documents' lengths, except those
    that only release memory: `released` counts what asked for that.
    """

    def __init__(
        self,
        labels: int = 2,
        seconds: Callable[[int, int], float] = lambda _batch, _n: 0.0,
        *,
        threads: int = 1,
        vocab_size: int = _ANY_ID,
        clock: Clock | None = None,
    ) -> None:
        self.info = EngineInfo(
            "fake", "cpu", "FakeProvider", "fp32", threads, "asked for by a test"
        )
        self.labels = labels
        self.seconds = seconds
        self.fail: BaseException | None = None
        self.runs: list[list[int]] = []
        self.released = 0
        self.closed = False
        self._config = ModelConfig(vocab_size=vocab_size, num_labels=labels, attention="linear")
        self._clock = clock or Clock()

    def run(
        self,
        ids: Ids,
        lengths: Ids,
        *,
        contributions: bool = False,
        release_memory: bool = False,
    ) -> Output:
        """Take as long as set, then give each token a contribution that depends on its id alone."""
        check_batch(ids, lengths, self._config)
        self.released += release_memory
        if not release_memory or ids.size > 1:
            self.runs.append([int(length) for length in lengths])
            self._clock.sleep(self.seconds(ids.shape[0], ids.shape[1]))
        if self.fail is not None:
            raise self.fail
        real = np.arange(ids.shape[1])[None, :] < lengths[:, None]  # (batch, n)
        classes = np.arange(1, self.labels + 1)
        ids = np.where(real, ids, 0)
        per_token: Floats = np.sin(ids[:, :, None] * classes).astype(np.float32)
        per_token *= real[:, :, None] / np.maximum(lengths, 1)[:, None, None]
        per_token = per_token.astype(np.float32)  # (batch, n, labels)
        return Output(per_token.sum(axis=1, dtype=np.float32), per_token if contributions else None)

    def close(self) -> None:
        """Remember that it was closed."""
        self.closed = True


@dataclass
class FakeFactory:
    """Opens fakes with the labels and times of the first, and keeps them all."""

    first: FakeEngine
    opened: list[FakeEngine] = field(default_factory=list)

    def open(self, *, threads: int, own_memory: bool) -> FakeEngine:
        """Another fake."""
        del own_memory
        self.opened.append(FakeEngine(self.first.labels, self.first.seconds, threads=threads))
        return self.opened[-1]
