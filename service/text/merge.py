"""From what a document's windows gave to its one answer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from service.engines.base import Floats
from service.http.schemas import Passage, Result, Score, Tokens
from service.text.evidence import Shares, combine, strongest
from service.text.tokenizer import Overflow, Reading


@dataclass(frozen=True)
class Options:
    """How a request wants its texts classified."""

    top_k: int | None = None
    on_overflow: Overflow = "window"
    evidence: int = 0
    timeout: float = 30.0


@dataclass(frozen=True)
class Document:
    """A document that is read: where its passages start, and what reading took."""

    text: str
    options: Options
    reading: Reading
    passages: NDArray[np.int64] | None
    seconds: float


@dataclass(frozen=True)
class Part:
    """What a window gave."""

    logits: Floats  # (labels,)
    shares: Shares | None  # of its passages, when asked for


def merge(labels: Sequence[str], document: Document, parts: Sequence[Part]) -> Result:
    """One answer from all windows: the mean of their logits, weighted by their tokens."""
    text, options, reading = document.text, document.options, document.reading
    weights, logits = [1.0], parts[0].logits  # (labels,)
    if len(parts) > 1:
        sizes = [len(window) for window in reading.windows]
        weights = [size / sum(sizes) for size in sizes]  # (windows,)
        logits = np.average([part.logits for part in parts], axis=0, weights=sizes)
    scores = _softmax(logits.tolist())
    order = sorted(range(len(scores)), key=scores.__getitem__, reverse=True)
    best = order[0]
    passages: list[Passage] = []
    if document.passages is not None:
        given = [part.shares for part in parts if part.shares is not None]
        shares = combine(len(document.passages), given, weights, best)  # (passages,)
        for start, end, weight in strongest(text, document.passages, shares, options.evidence):
            passages.append(Passage(start=start, end=end, text=text[start:end], weight=weight))
    return Result(
        label=labels[best],
        score=scores[best],
        scores=[Score(label=labels[i], score=scores[i]) for i in order[: options.top_k]],
        tokens=Tokens(
            total=reading.total,
            used=reading.used,
            windows=len(reading.windows),
            truncated=reading.truncated,
        ),
        evidence=passages,
    )


def _softmax(logits: list[float]) -> list[float]:
    """Probabilities. Of a few labels: as arrays, they would take twice as long."""
    most = max(logits)
    powers = [math.exp(logit - most) for logit in logits]
    total = sum(powers)
    return [power / total for power in powers]
