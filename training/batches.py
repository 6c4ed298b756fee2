"""Batches of documents of like length, and the pieces of documents that fill them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.tokenizing import Tokens

Ints = NDArray[np.int64]

_BLUR = 0.15  # share of its length by which a document may be put out of order


def group_by_length(
    lengths: Ints, batch_tokens: int, rng: np.random.Generator | None = None
) -> list[Ints]:
    """Indices in groups that fill at most `batch_tokens` when padded; a longer one is alone.

    With `rng`, neighbours in length vary and the groups come in random order; without it, the
    longest come first.
    """
    blur = 0.0 if rng is None else rng.random(len(lengths)) * lengths * _BLUR
    groups: list[Ints] = []
    current: list[int] = []
    longest = 0
    for index in np.argsort(-(lengths + blur), kind="stable"):
        longest = max(longest, int(lengths[index]), 1)
        if current and longest * (len(current) + 1) > batch_tokens:
            groups.append(np.array(current))
            current, longest = [], max(int(lengths[index]), 1)
        current.append(int(index))
    if current:
        groups.append(np.array(current))
    if rng is not None:
        rng.shuffle(groups)
    return groups


def random_piece(tokens: Tokens, document: int, crop: int, rng: np.random.Generator) -> Ints:
    """At most `crop` neighbouring tokens of a document, from anywhere."""
    length = tokens.length_of(document)
    start = int(rng.integers(0, max(0, length - crop) + 1))
    return tokens.document(document, start, start + crop)


def pad(pieces: Sequence[Ints]) -> tuple[Tensor, Tensor]:
    """ids (batch, n), padded with zeros, and lengths (batch,)."""
    lengths = np.array([len(piece) for piece in pieces], dtype=np.int64)
    ids = np.zeros((len(pieces), max(1, int(lengths.max()))), np.int64)
    for row, piece in zip(ids, pieces, strict=True):
        row[: len(piece)] = piece
    return torch.from_numpy(ids), torch.from_numpy(lengths)
