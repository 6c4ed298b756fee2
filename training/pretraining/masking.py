"""What is hidden from the network, and what it is to find: masked tokens, and sentence order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Ints = NDArray[np.int64]

_MASKED = 0.15  # share of the tokens that are to be found
_HIDDEN, _REPLACED = 0.8, 0.1  # of these: shown as the mask, as a random token; the rest as it is


@dataclass(frozen=True)
class Tokens:
    """Ids with a meaning of their own: the mask, what separates two segments, all below `words`."""

    mask: int
    separator: int
    words: int


@dataclass(frozen=True)
class Task:
    """A batch with tokens hidden.

    ids, lengths   what the network reads
    places         (hidden, 2) row and column of what is to be found
    wanted         (hidden,) the tokens that stood there
    swapped        (rows,) whether a row's two halves changed places
    """

    ids: Tensor
    lengths: Tensor
    places: Tensor
    wanted: Tensor
    swapped: Tensor


def make_task(pieces: Sequence[Ints], tokens: Tokens, size: int, rng: np.random.Generator) -> Task:
    """Swap the halves of every other piece, separate them, hide some tokens; pad to `size`.

    A piece has at most `size` − 1 tokens, for the separator.
    """
    rows = len(pieces)
    ids = np.zeros((rows, size), np.int64)
    lengths = np.zeros(rows, np.int64)
    swapped = rng.random(rows) < 0.5
    hidden = np.zeros((rows, size), np.bool_)
    for row, piece in enumerate(pieces):
        half = len(piece) // 2
        first, second = piece[:half], piece[half:]
        if swapped[row]:
            first, second = second, first
        whole = np.concatenate([first, [tokens.separator], second])
        lengths[row] = len(whole)
        ids[row, : len(whole)] = whole
        chosen = rng.random(len(whole)) < _MASKED
        chosen[len(first)] = False
        if not chosen.any():
            chosen[0 if len(first) else 1] = True
        hidden[row, : len(whole)] = chosen
    wanted = ids[hidden]
    draw = rng.random(len(wanted))
    shown = np.where(draw < _HIDDEN, tokens.mask, wanted)
    random = rng.integers(0, tokens.words, len(wanted))
    shown = np.where((draw >= _HIDDEN) & (draw < _HIDDEN + _REPLACED), random, shown)
    ids[hidden] = shown
    return Task(
        torch.from_numpy(ids),
        torch.from_numpy(lengths),
        torch.from_numpy(np.argwhere(hidden)),
        torch.from_numpy(wanted),
        torch.from_numpy(swapped.astype(np.int64)),
    )
