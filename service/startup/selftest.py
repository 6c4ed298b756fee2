"""What the service does before it calls itself ready.

Documents that travel with the bundle are classified: their probabilities must be those that the
network in float32 gave them, or this engine in this precision does not serve here. A canary
document is classified alone, padded and among others: its answer must not depend on them. Then
runs of several lengths are timed, to fit the cost model. Whether short documents gain
from sharing a run is tried later, while the service already answers (`try_groups`).
"""

from __future__ import annotations

import math
import resource
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from models.errors import BundleError, EngineError
from models.reference import Reference
from service.engines.base import Engine, Floats, Ids
from service.scheduling.forecast import CostModel

CANARY = (
    "Long documents are read from beginning to end. This one is short, and stands here so that "
    "the service can see, each time it starts, that an answer does not depend on the company in "
    "which a document travels: alone, with padding behind it, or between two others. "
)
TOLERANCE = 1e-4
#: Largest difference of a probability from the bundle's own results, by precision.
BOUNDS: Mapping[str, float] = {"fp32": 1e-4, "fp16": 0.01, "bf16": 0.02, "f16": 0.02, "int8": 0.25}

#: Largest difference of a probability between a document alone and in company, in 16 bits.
COMPANY: Mapping[str, float] = {"bf16": 0.005, "f16": 0.005}

_ENOUGH_TOKENS = 1_200  # of a document in float32: what goes wrong there does at any length
_LENGTHS = (32, 128, 512, 2048)
_ENOUGH = 0.03  # seconds of work after which two rounds must do: nobody can use the service yet
_GROUP_TOKENS, _GROUP_SIZE = 1024, 8  # in the trial of sharing; never fewer than two documents
_STRIDE = 7919  # a prime: neighbouring tokens lie far apart
# A shared run may even take a little longer than its members alone: handing documents over and
# answering them costs less when several are done at once.
_WORTH_IT = 0.9


@dataclass(frozen=True)
class SelfTest:
    """What was found.

    from_float32         largest difference of a probability from the bundle's own results; None
                         when it has none
    largest_difference   of a probability, between alone, padded and mixed
    batching             whether documents may share a run
    bytes_per_token      memory that a run takes for each of its tokens
    seconds              what the self-test took
    """

    largest_difference: float
    batching: bool
    bytes_per_token: float
    seconds: float
    from_float32: float | None = None


def run_self_test(
    engine: Engine, canary: Ids, limit: int, vocab_size: int, work_clock: Callable[[], float]
) -> tuple[SelfTest, CostModel]:
    """Check the engine, then fit the cost model; `canary` is the canary's token ids."""
    started = time.monotonic()
    difference = _canary_difference(engine, canary[:limit], limit)
    batching = difference <= COMPANY.get(engine.info.precision, TOLERANCE)
    memory_before = _peak_bytes()
    samples = []
    for length in _lengths(limit):
        (seconds,) = _fastest(engine, [_tokens(1, length, vocab_size)], work_clock, rounds=2)
        samples.append((length, seconds))
    growth = max(0, _peak_bytes() - memory_before)
    longest, _ = samples[-1]
    found = SelfTest(difference, batching, growth / longest, time.monotonic() - started)
    return found, CostModel(samples)


def check_reference(
    engine: Engine, read: Callable[[str], Ids], reference: Reference
) -> tuple[float, float]:
    """The largest difference of a probability from the bundle's own results, and the bound.

    Above the bound, or where the tokenizer finds other tokens, an error says so with figures.
    """
    precision = engine.info.precision
    bound, largest = BOUNDS[precision], 0.0
    for index, document in enumerate(reference.documents):
        if index and precision == "fp32" and document.tokens > _ENOUGH_TOKENS:
            break
        ids = read(document.whole)
        if len(ids) != document.tokens:
            raise BundleError(
                f"the bundle's tokenizer finds {len(ids)} tokens in a document of its own that "
                f"had {document.tokens} when it was exported: export it again"
            )
        found = _probabilities(engine.run(ids[None], np.array([len(ids)])).logits[0])
        difference = _largest_difference(found, np.array(document.probabilities))
        if not difference <= bound:
            raise EngineError(
                f"{engine.info.label} in {precision} gives other answers on this machine than the "
                f"bundle's float32: for a document of {len(ids)} tokens a probability differs by "
                f"{difference:.2g}, and {bound:g} is allowed; choose another precision or engine"
            )
        largest = max(largest, difference)
    return largest, bound


def try_groups(
    engine: Engine, limit: int, vocab_size: int, work_clock: Callable[[], float]
) -> tuple[int, float]:
    """The largest length of those tried up to which a group is faster than its members alone.

    And the seconds of work that each further member saves of the shortest. A group and one alone
    are timed in turns: a machine that is slower for a moment does not decide it.
    """
    below, saving = 0, 0.0
    for length in _lengths(limit):
        if engine.info.device == "cpu" and length > 512:
            break  # on a core, long documents never gain
        size = max(2, min(_GROUP_SIZE, _GROUP_TOKENS // length))
        group = _tokens(size, length, vocab_size)
        alone, together = _fastest(engine, [group[:1], group], work_clock, rounds=4)
        if alone * size < _WORTH_IT * together:
            break
        if below == 0:
            saving = max(0.0, (alone * size - together) / (size - 1))
        below = length
    return below, saving


def difference_between(one: Engine, other: Engine, ids: Ids) -> float:
    """Largest difference between two engines' probabilities for a document."""
    lengths = np.array([len(ids)])
    first, second = (_probabilities(e.run(ids[None], lengths).logits[0]) for e in (one, other))
    return _largest_difference(first, second)


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
    return max(_largest_difference(mixed, alone), _largest_difference(padded, alone))


def _largest_difference(found: Floats, expected: Floats) -> float:
    """Infinite where one is no number: no comparison lets that pass."""
    difference = float(np.abs(found - expected).max())
    return difference if math.isfinite(difference) else math.inf


def _lengths(limit: int) -> list[int]:
    return sorted({min(length, limit) for length in _LENGTHS})


def _tokens(size: int, length: int, vocab_size: int) -> Ids:
    """Documents of tokens from all over the vocabulary; numpy's generator would load too long."""
    return (np.arange(size * length).reshape(size, length) * _STRIDE) % vocab_size  # (batch, n)


def _fastest(
    engine: Engine, batches: list[Ids], work_clock: Callable[[], float], rounds: int
) -> tuple[float, ...]:
    """Seconds of the fastest run of each batch, of some that take turns."""
    best = [float("inf")] * len(batches)
    done, spent = 0, 0.0
    while done < (rounds if spent < _ENOUGH else 2):
        for index, ids in enumerate(batches):
            lengths = np.full(ids.shape[0], ids.shape[1], dtype=np.int64)  # (batch,)
            started = work_clock()
            engine.run(ids, lengths)
            seconds = work_clock() - started
            best[index] = min(best[index], max(seconds, 1e-6))
            spent += seconds
        done += 1
    return tuple(best)


def _probabilities(logits: Floats) -> Floats:
    scores: Floats = np.exp(logits - logits.max())
    scores /= scores.sum()
    return scores


def _peak_bytes() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
