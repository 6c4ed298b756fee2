"""Evidence: the passages of a text that speak most for a label.

A label's logit is the head's bias plus the contributions of all tokens, so a passage's weight,
the sum over its tokens, is its exact share of the logit.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from service.engines.base import Floats

_LONGEST = 400  # characters of a passage, where there is white space to cut at
_SHORTEST = 40  # characters; a shorter sentence joins its neighbour
_UNBROKEN = 1000  # characters without white space before a word itself is cut

# A run of stops is entered at its first only, and never gone through again: from each of its
# stops, a long run that ends no sentence would take time that grows with its square.
_SENTENCE_END = re.compile(r"(?<![.!?…])[.!?…]++[\"'”’)\]]*+\s|[。！？]|\n\s*\n")
_LAST_SPACE = re.compile(r"\s\S*\Z")
_SPACE = re.compile(r"\s")


@dataclass(frozen=True)
class Shares:
    """The shares that one window's tokens give to the passages it touches, and to no others."""

    first: int  # the first of these passages
    of_logits: NDArray[np.float64]  # (passages, labels)


def cut_passages(text: str) -> NDArray[np.int64]:
    """Where each passage starts, in characters: sentences, joined or cut to a readable length.

    Each cut looks at no more than the next thousand characters.
    """
    starts, start = [0] if text else [], 0
    while (start := _passage_end(text, start)) < len(text):
        starts.append(start)
    return np.array(starts, dtype=np.int64)  # (passages,)


def _passage_end(text: str, start: int) -> int:
    """The end of the passage that starts there."""
    furthest = min(len(text), start + _UNBROKEN)
    found = _SENTENCE_END.search(text, start, furthest)
    while found is not None and found.end() < start + _SHORTEST:
        found = _SENTENCE_END.search(text, found.end(), furthest)
    end = found.end() if found is not None else furthest
    if end - start <= _LONGEST:
        return end
    last = _LAST_SPACE.search(text[start : start + _LONGEST])
    if last is not None and last.start() > 0:
        return start + last.start() + 1
    space = _SPACE.search(text, start + _LONGEST, end)
    return space.end() if space is not None else end


def weigh(
    starts: NDArray[np.int64], token_ends: NDArray[np.int64], contributions: Floats
) -> Shares:
    """The passages' shares of each logit, from a window's tokens: each counts where it ends."""
    passage = np.searchsorted(starts, np.maximum(token_ends - 1, 0), side="right") - 1  # (n,)
    first = int(passage.min())
    passage -= first
    count = int(passage.max()) + 1
    columns = [np.bincount(passage, column, count) for column in contributions.T]
    return Shares(first, np.stack(columns, axis=1))


def combine(
    passages: int, parts: Sequence[Shares], weights: Sequence[float], label: int
) -> NDArray[np.float64]:
    """All passages' shares of one label's logit, from those of the windows."""
    total = np.zeros(passages)
    for part, weight in zip(parts, weights, strict=True):
        total[part.first : part.first + len(part.of_logits)] += weight * part.of_logits[:, label]
    return total


def strongest(
    text: str, starts: NDArray[np.int64], weights: NDArray[np.float64], count: int
) -> list[tuple[int, int, float]]:
    """The passages that speak most for the label, as (start, end, weight), strongest first."""
    found: list[tuple[int, int, float]] = []
    for index in np.argsort(-weights, kind="stable")[:count]:
        if weights[index] <= 0:
            break
        start = int(starts[index])
        end = int(starts[index + 1]) if index + 1 < len(starts) else len(text)
        passage = text[start:end]
        start += len(passage) - len(passage.lstrip())
        end -= len(passage) - len(passage.rstrip())
        if start < end:
            found.append((start, end, float(weights[index])))
    return found
