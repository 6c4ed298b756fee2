"""Two engines side by side: how far apart their answers are, and how fast they give them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np

from export.documents import Documents
from models.encoders.config import NetworkConfig
from models.probabilities import softmax
from models.progress import ProgressBar
from service.engines.base import Engine, Floats, Ids, Output

LENGTHS = (1, 2, 3, 17, 64, 100, 509, 1024, 4099, 16384)
BATCHES = (1, 3)
SPEED_LENGTHS = (128, 512, 2048, 8192)
SPEED_ROUNDS = 7
#: Memory that one case may take; what needs more is left out, and the certificate says so.
MEMORY_LIMIT = 8 << 30

_NOT_A_NUMBER = 1e9  # what a difference counts as when an answer is no number
_GARBAGE = np.int64(1 << 40)  # no vocabulary has it: padding may hold anything


@dataclass(frozen=True)
class Case:
    """One batch: what its tokens are, the longest document, and whether it is padded."""

    tokens: str
    length: int
    batch: int
    padded: bool

    def describe(self) -> dict[str, Any]:
        """The case as the certificate names it."""
        return {
            "tokens": self.tokens,
            "length": self.length,
            "batch": self.batch,
            "padded": self.padded,
        }


@dataclass
class Agreement:
    """Largest differences, over all cases and by case."""

    probability: float = 0.0
    logit: float = 0.0
    contribution: float = 0.0
    batch_invariance: float = 0.0
    reference_batch_invariance: float = 0.0
    cases: list[dict[str, Any]] = field(default_factory=list)
    left_out: list[dict[str, Any]] = field(default_factory=list)


def probabilities(logits: Floats) -> Floats:
    return softmax(logits).astype(np.float32)


def compare(
    reference: Engine,
    candidate: Engine,
    config: NetworkConfig,
    documents: Documents,
    max_tokens: int,
    *,
    every_case: bool = True,
) -> Agreement:
    """Run both engines over every case that the network takes and the memory allows.

    Without `every_case`, over text alone: single documents, and padded batches.
    """
    found = Agreement()
    random = np.random.default_rng(0)
    cases = list(_cases(max_tokens, every_case=every_case))
    total = sum(case.length * case.batch for case in cases)
    with ProgressBar("comparing with PyTorch", total, "token") as bar:
        for case in cases:
            needed = _bytes_needed(case, config)
            if needed > MEMORY_LIMIT:
                reason = f"needs about {needed / 2**30:.0f} GiB"
                found.left_out.append({**case.describe(), "reason": reason})
            else:
                batch = _batch(case, config, documents, random, max_tokens)
                _compare_case(reference, candidate, case, batch, found)
            bar.add(case.length * case.batch)
    return found


def _compare_case(
    reference: Engine, candidate: Engine, case: Case, batch: tuple[Ids, Ids], found: Agreement
) -> None:
    """Add one case's differences, and how far answers depend on the batch, to what was found."""
    ids, lengths = batch
    expected = reference.run(ids, lengths, contributions=True)
    actual = candidate.run(ids, lengths, contributions=True)
    differences = _differences(expected, actual)
    found.cases.append({**case.describe(), **differences})
    for name, value in differences.items():
        setattr(found, name, max(getattr(found, name), value))
    if case.batch > 1 and case.padded:
        own = _invariance(candidate, ids, lengths, actual)
        found.batch_invariance = max(found.batch_invariance, own)
        theirs = _invariance(reference, ids, lengths, expected)
        found.reference_batch_invariance = max(found.reference_batch_invariance, theirs)


def label_changes(
    reference: Engine, candidate: Engine, documents: Documents
) -> tuple[float, float]:
    """Share of documents whose label changes, and the largest difference of a probability."""
    changed, largest = 0, 0.0
    for ids in documents.ids:
        length = np.array([len(ids)])
        expected = probabilities(reference.run(ids[None], length).logits)
        actual = probabilities(candidate.run(ids[None], length).logits)
        changed += int(expected.argmax() != actual.argmax())
        largest = max(largest, _largest(expected, actual))
    return changed / len(documents.ids), largest


def speed_ratios(
    reference: Engine, candidate: Engine, config: NetworkConfig, max_tokens: int
) -> dict[str, float]:
    """How many times faster the candidate is, by length, run in turns with the reference."""
    ratios = {}
    random = np.random.default_rng(0)
    for length in sorted({min(length, max_tokens) for length in SPEED_LENGTHS}):
        ids = random.integers(0, config.vocab_size, (1, length))
        seconds: dict[Engine, list[float]] = {reference: [], candidate: []}
        for _ in range(SPEED_ROUNDS):
            for engine, taken in seconds.items():
                started = time.process_time()
                engine.run(ids, np.array([length]))
                taken.append(time.process_time() - started)
        ratios[str(length)] = round(
            float(np.median(seconds[reference]) / np.median(seconds[candidate])), 3
        )
    return ratios


def _cases(max_tokens: int, *, every_case: bool) -> Iterator[Case]:
    lengths = {length for length in LENGTHS if length <= max_tokens}
    if max_tokens < LENGTHS[-1]:
        lengths.add(max_tokens)
    for length, tokens, batch, padded in product(
        sorted(lengths), ("text", "random"), BATCHES, (False, True)
    ):
        if every_case or (tokens == "text" and padded == (batch > 1)):
            yield Case(tokens, length, batch, padded)


def _batch(
    case: Case, config: NetworkConfig, documents: Documents, random: np.random.Generator, limit: int
) -> tuple[Ids, Ids]:
    """A case's ids and lengths; padding holds ids that no vocabulary has."""
    n = case.length if not case.padded else max(case.length, min(limit, case.length * 5 // 4 + 3))
    lengths = np.full(case.batch, case.length)
    if case.padded:
        lengths = np.maximum(1, case.length // np.arange(1, case.batch + 1))
    ids = np.full((case.batch, n), _GARBAGE)
    for row, length in enumerate(lengths):
        start = int(random.integers(0, 1 << 20))
        if case.tokens == "text":
            ids[row, :length] = documents.stream(int(length), start)
        else:
            ids[row, :length] = random.integers(0, config.vocab_size, length)
    return ids, lengths


def _differences(expected: Output, actual: Output) -> dict[str, float]:
    if expected.contributions is None or actual.contributions is None:
        raise ValueError("both engines were asked for contributions")
    pairs = {
        "probability": (probabilities(expected.logits), probabilities(actual.logits)),
        "logit": (expected.logits, actual.logits),
        "contribution": (expected.contributions, actual.contributions),
    }
    return {name: _largest(a, b) for name, (a, b) in pairs.items()}


def _largest(a: Floats, b: Floats) -> float:
    difference = float(np.abs(a - b).max())
    return difference if np.isfinite(difference) else _NOT_A_NUMBER


def _invariance(engine: Engine, ids: Ids, lengths: Ids, together: Output) -> float:
    """Largest difference of a probability between documents alone and in their batch."""
    among_others = probabilities(together.logits)
    largest = 0.0
    for row, length in enumerate(lengths):
        alone = probabilities(
            engine.run(ids[row : row + 1, :length], lengths[row : row + 1]).logits
        )
        largest = max(largest, _largest(alone[0], among_others[row]))
    return largest


def _bytes_needed(case: Case, config: NetworkConfig) -> int:
    """What a mechanism without a fused kernel takes: about three n × n matrices per head."""
    quadratic = not config.linear and config.attention != "softmax"
    return 3 * 4 * case.batch * config.heads * case.length**2 if quadratic else 0
