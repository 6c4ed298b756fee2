"""Evidence: the passages of a text that speak most for a label.

A label's logit is the head's bias plus the contributions of all tokens, so a passage's weight,
the sum over its tokens, is its exact share of the logit.
"""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from service.engines.base import Floats

_LONGEST = 400  # characters of a passage, where there is white space to cut at
_SHORTEST = 40  # characters; a shorter sentence joins its neighbour
_UNBROKEN = 1000  # characters without white space before a word itself is cut

_SENTENCE_END = re.compile(r"[.!?…]+[\"'”’)\]]*\s|[。！？]|\n\s*\n")
_LAST_SPACE = re.compile(r"\s\S*\Z")


def cut_passages(text: str) -> NDArray[np.int64]:
    """Where each passage starts, in characters: sentences, joined or cut to a readable length."""
    starts, start = [0], 0
    ends = (match.end() for match in _SENTENCE_END.finditer(text))
    for end in (*ends, len(text)):
        while end - start > _LONGEST:
            start = _cut(text, start, end)
            starts.append(start)
            if start >= end:
                break
        if end - start >= _SHORTEST and end < len(text):
            start = end
            starts.append(start)
    unique = sorted({position for position in starts if position < len(text)})
    return np.array(unique, dtype=np.int64)  # (passages,)


def _cut(text: str, start: int, end: int) -> int:
    """Where to end a passage that is too long: after white space if there is any near."""
    space = _LAST_SPACE.search(text[start : start + _LONGEST])
    if space is not None and space.start() > 0:
        return start + space.start() + 1
    for position in range(start + _LONGEST, min(end, start + _UNBROKEN)):
        if text[position].isspace():
            return position + 1
    return min(end, start + _UNBROKEN)


def weigh(
    starts: NDArray[np.int64], token_ends: NDArray[np.int64], contributions: Floats
) -> NDArray[np.float64]:
    """Each passage's share of each logit, from the tokens that end in it."""
    passage = np.searchsorted(starts, np.maximum(token_ends - 1, 0), side="right") - 1  # (n,)
    shares = np.zeros((len(starts), contributions.shape[1]))  # (passages, labels)
    np.add.at(shares, passage, contributions)
    return shares


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
