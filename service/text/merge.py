"""Merge what the windows of a document gave into its one result. Runs on worker threads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field

from models.errors import EngineError
from models.windows import Merge, window_weights
from service.engines.base import Floats
from service.text.evidence import Shares, combine, strongest
from service.text.tokenizer import Reading

_DIGITS = 6  # of a score: float32 logits carry no more, and the company of a batch changes the next
_LEAST = 10.0**-_DIGITS


class _Part:
    """Base of a result's parts, of which there are many: plain objects cost a third of models."""

    __slots__ = ()
    __pydantic_config__ = ConfigDict(extra="forbid")


@dataclass(slots=True)
class Score(_Part):
    """A label and its probability."""

    label: str
    score: float


@dataclass(slots=True)
class Tokens(_Part):
    """What was read of a text."""

    total: Annotated[int, Field(description="Tokens of the whole text.")]
    used: Annotated[int, Field(description="Tokens that were read.")]
    windows: Annotated[int, Field(description="Windows they were read in.")]
    truncated: Annotated[bool, Field(description="Whether the end was left unread.")]


@dataclass(slots=True)
class Passage(_Part):
    """A passage that speaks for the label."""

    start: Annotated[int, Field(description="First character, counted in code points.")]
    end: Annotated[int, Field(description="One past the last character.")]
    text: str
    weight: Annotated[float, Field(description="What the passage adds to the label's logit.")]


@dataclass(slots=True)
class Result(_Part):
    """What was found for one text."""

    label: str
    score: float
    scores: list[Score]
    tokens: Tokens
    evidence: list[Passage]


@dataclass(frozen=True, slots=True)
class WindowOutput:
    """A window's logits and, when evidence is wanted, each passage's share of them."""

    logits: Floats  # (labels,)
    shares: Shares | None


def merge(
    labels: Sequence[str],
    text: str,
    reading: Reading,
    passages: NDArray[np.int64] | None,
    windows: Sequence[WindowOutput],
    *,
    top_k: int | None,
    evidence: int,
    how: Merge = "mean",
) -> Result:
    """Merge the windows' logits, and rank labels and passages."""
    weights, logits = [1.0], windows[0].logits  # (labels,)
    if len(windows) > 1:
        sizes = [len(window) for window in reading.windows]
        certainty: list[float] = []
        if how == "strongest":
            certainty = [max(_probabilities(window.logits.tolist())) for window in windows]
        weights = window_weights(sizes, certainty, how)  # (windows,)
        logits = np.average([window.logits for window in windows], axis=0, weights=weights)
    scores = _probabilities(logits.tolist())
    order = sorted(range(len(scores)), key=scores.__getitem__, reverse=True)
    best = order[0]
    found: list[Passage] = []
    if passages is not None:
        given = [window.shares for window in windows if window.shares is not None]
        shares = combine(len(passages), given, weights, best)  # (passages,)
        for start, end, weight in strongest(text, passages, shares, evidence):
            found.append(Passage(start, end, text[start:end], weight))
    shown = []
    for index in order[:top_k]:
        # The digits that a score has. No label is impossible, and none is certain.
        score = min(max(round(scores[index], _DIGITS), _LEAST), 1 - _LEAST)
        shown.append(Score(labels[index], score))
    used = reading.windows[-1].end
    tokens = Tokens(reading.total, used, len(reading.windows), used < reading.total)
    return Result(shown[0].label, shown[0].score, shown, tokens, found)


def _probabilities(logits: list[float]) -> list[float]:
    """Softmax over a few labels; as arrays, they would take twice as long."""
    if not all(map(math.isfinite, logits)):
        raise EngineError("the engine gave a logit that is not a finite number")
    most = max(logits)
    powers = [math.exp(logit - most) for logit in logits]
    total = sum(powers)
    return [power / total for power in powers]
