"""Logits for whole documents: in one piece, or in windows combined as the service does it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.networks import Network
from models.windows import OVERLAP, cut_windows
from training.batches import group_by_length, pad
from training.tokenizing import Tokens, Vocabulary

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_BATCH_TOKENS = 16_384


@dataclass(frozen=True)
class Predictor:
    """Reads documents with one network.

    max_tokens   the longest piece it reads at once
    begins       whether each entry of the vocabulary begins a word
    blank        whether each entry is white space only
    overlap      tokens that neighbouring windows share
    """

    model: Network
    tokens: Tokens
    max_tokens: int
    begins: NDArray[np.bool_]
    blank: NDArray[np.bool_]
    overlap: int = OVERLAP

    def __call__(
        self, rows: Ints, read: int | None = None, progress: Callable[[int], object] | None = None
    ) -> Floats:
        """Logits (rows, labels), of the first `read` tokens if given; windows by their tokens."""
        windows = [
            (position, start, end)
            for position, row in enumerate(rows)
            for start, end in self.windows(self.tokens.document(int(row), 0, read))
        ]
        sizes = np.array([end - start for _, start, end in windows])
        sums = np.zeros((len(rows), self.model.config.num_labels))
        weights = np.zeros(len(rows))
        for group in group_by_length(sizes, _BATCH_TOKENS):
            pieces = [self._piece(rows, windows[index]) for index in group]
            logits = infer(self.model, *pad(pieces))
            for index, row_logits in zip(group, logits, strict=True):
                position, size = windows[index][0], max(1, int(sizes[index]))
                sums[position] += size * row_logits
                weights[position] += size
            if progress is not None:
                progress(int(sizes[group].sum()))
        return sums / weights[:, None]

    def _piece(self, rows: Ints, window: tuple[int, int, int]) -> Ints:
        position, start, end = window
        return self.tokens.document(int(rows[position]), start, end)

    def windows(self, ids: Ints) -> list[tuple[int, int]]:
        """Where a document is cut: one window if it fits."""
        if len(ids) <= self.max_tokens:
            return [(0, len(ids))]
        starts = self.begins[ids]
        starts[1:] |= self.blank[ids[:-1]]
        overlap = min(self.overlap, self.max_tokens // 2)
        return cut_windows(len(ids), starts.__getitem__, self.max_tokens, overlap)


def infer(model: Network, ids: Tensor, lengths: Tensor) -> Floats:
    """Logits (batch, labels) of one batch."""
    device = next(model.parameters()).device
    with torch.inference_mode():
        logits: Tensor = model(ids.to(device), lengths.to(device))
        return logits.double().cpu().numpy()


def predictor_for(
    model: Network,
    tokens: Tokens,
    vocabulary: Vocabulary,
    max_tokens: int,
    overlap: int = OVERLAP,
) -> Predictor:
    """A predictor in evaluation mode, with word beginnings from the vocabulary."""
    begins = np.ones(vocabulary.size, dtype=np.bool_)
    blank = np.zeros(vocabulary.size, dtype=np.bool_)
    if vocabulary.kind == "bpe":
        for token, index in vocabulary.tokenizer.get_vocab().items():
            begins[index] = token[0] in "ĠĊĉč"  # a space, line feed, tab or return
            blank[index] = all(character in "ĠĊĉč" for character in token)
    return Predictor(model.eval(), tokens, max_tokens, begins, blank, overlap)
