"""What the service does before it calls itself ready.

A canary document is classified alone, padded and among others: its answer must not depend on
them. Then runs of several lengths are timed, to fit the cost model and to see whether short
documents gain from sharing a run.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from service.cost import CostModel
from service.engines.base import Engine, Floats, Ids

CANARY = (
    "Long documents are read from beginning to end. This one is short, and stands here so that "
    "the service can see, each time it starts, that an answer does not depend on the company in "
    "which a document travels: alone, with padding behind it, or between two others. "
)
TOLERANCE = 1e-4

_LENGTHS = (32, 128, 512, 2048)
_ROUNDS = 3
_ENOUGH = 0.05  # seconds of work after which two rounds must do: nobody can use the service yet
_GROUP = 4  # documents in the trial of sharing
# A shared run may even take a little longer than its members alone: handing documents over and
# answering them costs less when several are done at once.
_WORTH_IT = 0.9


@dataclass(frozen=True)
class SelfTest:
    """What was found.

    largest_difference   of a probability, between alone, padded and mixed
    batching             whether documents may share a run
    group_below          length up to which sharing a run is faster
    bytes_per_token      memory that a run takes for each of its tokens
    seconds              what the self-test took
    """

    largest_difference: float
    batching: bool
    group_below: int
    bytes_per_token: float
    seconds: float


def run_self_test(
    engine: Engine, canary: Ids, limit: int, vocab_size: int, work_clock: Callable[[], float]
) -> tuple[SelfTest, CostModel]:
    """Check the engine, then fit the cost model; `canary` is the canary's token ids."""
    started = time.monotonic()
    difference = _canary_difference(engine, canary[:limit], limit)
    batching = difference <= TOLERANCE
    memory_before = _peak_bytes()
    random = np.random.default_rng(0)
    lengths = sorted({min(length, limit) for length in _LENGTHS})
    samples = []
    for length in lengths:
        ids = random.integers(0, vocab_size, (1, length))  # (1, n)
        seconds = _fastest(engine, ids, work_clock)
        samples.append((length, seconds))
    growth = max(0, _peak_bytes() - memory_before)
    group_below = _group_below(engine, samples, vocab_size, work_clock) if batching else 0
    found = SelfTest(
        difference, batching, group_below, growth / lengths[-1], time.monotonic() - started
    )
    return found, CostModel(samples)


def difference_between(one: Engine, other: Engine, ids: Ids) -> float:
    """Largest difference between two engines' probabilities for a document."""
    lengths = np.array([len(ids)])
    first, second = (_probabilities(e.run(ids[None], lengths).logits[0]) for e in (one, other))
    return float(np.abs(first - second).max())


def _canary_difference(engine: Engine, canary: Ids, limit: int) -> float:
    """Largest difference between the canary's probabilities alone, padded and mixed."""
    n = len(canary)
    wide = min(limit, 2 * n + 3)
    alone = _probabilities(engine.run(canary[None], np.array([n])).logits[0])
    rows = np.zeros((3, wide), dtype=np.int64)  # (batch, n)
    rows[:, :n] = canary
    rows[0, : wide // 3] = canary[0]
    rows[2, :] = np.resize(canary[::-1], wide)
    lengths = np.array([max(1, wide // 3), n, wide])
    mixed = _probabilities(engine.run(rows, lengths).logits[1])
    padded = _probabilities(engine.run(rows[1:2], lengths[1:2]).logits[0])
    return float(max(np.abs(mixed - alone).max(), np.abs(padded - alone).max()))


def _group_below(
    engine: Engine,
    samples: list[tuple[int, float]],
    vocab_size: int,
    work_clock: Callable[[], float],
) -> int:
    """The largest length of those timed up to which a group is faster than its members alone."""
    below = 0
    for length, alone in samples:
        if engine.info.device == "cpu" and length > 512:
            break  # on a core, long documents never gain
        ids = np.random.default_rng(1).integers(0, vocab_size, (_GROUP, length))  # (batch, n)
        together = _fastest(engine, ids, work_clock)
        if alone * _GROUP < _WORTH_IT * together:
            break
        below = length
    return below


def _fastest(engine: Engine, ids: Ids, work_clock: Callable[[], float]) -> float:
    lengths = np.full(ids.shape[0], ids.shape[1], dtype=np.int64)  # (batch,)
    seconds: list[float] = []
    while len(seconds) < (_ROUNDS if sum(seconds) < _ENOUGH else 2):
        started = work_clock()
        engine.run(ids, lengths)
        seconds.append(work_clock() - started)
    return max(min(seconds), 1e-6)


def _probabilities(logits: Floats) -> Floats:
    scores: Floats = np.exp(logits - logits.max())
    scores /= scores.sum()
    return scores


def _peak_bytes() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
