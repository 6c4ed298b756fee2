"""Batches of whole documents, each as windows, in shapes that repeat.

oneDNN keeps a compiled kernel for every shape it meets: with lengths that change at each step a
process grows to many gigabytes and slows down. So lengths are rounded up to a few sizes, and the
number of rows to quarters of what a batch holds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.tokenizing import Tokens

Ints = NDArray[np.int64]
Window = tuple[int, int]

_SHARES = (1 / 16, 1 / 8, 3 / 16, 1 / 4, 3 / 8, 1 / 2, 5 / 8, 3 / 4, 7 / 8, 1)
_QUARTERS = 4


@dataclass(frozen=True)
class Batch:
    """Some documents: indices of them, and for every window its document, start and end."""

    documents: Ints  # (d,)
    windows: Ints  # (w, 3): place in `documents`, start, end
    size: int  # what lengths are padded to
    rows: int  # most windows at once


def sizes_up_to(longest: int) -> Ints:
    """The lengths that documents are padded to."""
    rounded = {max(8, int(longest * share)) for share in _SHARES}
    return np.array(sorted(min(longest, size) for size in rounded), np.int64)


def make_batches(
    windows: list[list[Window]], sizes: Ints, batch_tokens: int, rng: np.random.Generator
) -> list[Batch]:
    """All documents in random order, those of a like length together."""
    longest = np.array([max(end - start for start, end in cut) for cut in windows])
    size_of = sizes[np.searchsorted(sizes, longest)]
    batches: list[Batch] = []
    for size in sizes:
        members = np.flatnonzero(size_of == size)
        rng.shuffle(members)
        rows = max(_QUARTERS, batch_tokens // int(size) // _QUARTERS * _QUARTERS)
        group: list[int] = []
        filled = 0
        for member in members:
            count = len(windows[member])
            if group and filled + count > rows:
                batches.append(_batch(group, windows, int(size), rows))
                group, filled = [], 0
            group.append(int(member))
            filled += count
        if group:
            batches.append(_batch(group, windows, int(size), rows))
    rng.shuffle(batches)
    return batches


def _batch(group: list[int], windows: list[list[Window]], size: int, rows: int) -> Batch:
    cut = [(place, *window) for place, member in enumerate(group) for window in windows[member]]
    return Batch(np.array(group), np.array(cut, np.int64), size, rows)


def chunks(batch: Batch) -> list[Ints]:
    """The batch's windows, as many at a time as fit."""
    return [batch.windows[at : at + batch.rows] for at in range(0, len(batch.windows), batch.rows)]


def padded(batch: Batch, chunk: Ints, tokens: Tokens, rows_of: Ints) -> tuple[Tensor, Tensor]:
    """ids (rows, size) and lengths (rows,) of some windows; rows that fill up hold one token."""
    step = max(1, batch.rows // _QUARTERS)
    rows = min(batch.rows, -(-len(chunk) // step) * step)
    ids = np.zeros((rows, batch.size), np.int64)
    lengths = np.ones(rows, np.int64)
    for row, (place, start, end) in enumerate(chunk):
        piece = tokens.document(int(rows_of[batch.documents[place]]), int(start), int(end))
        ids[row, : len(piece)] = piece
        lengths[row] = max(1, len(piece))
    return torch.from_numpy(ids), torch.from_numpy(lengths)
