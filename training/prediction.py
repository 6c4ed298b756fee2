"""Logits for whole documents: in one piece, or in windows combined as the service does it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.networks import Network
from models.probabilities import softmax
from models.windows import OVERLAP, Merge, cut_windows, window_weights
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
    merge        what stands for a document of several windows
    """

    model: Network
    tokens: Tokens
    max_tokens: int
    begins: NDArray[np.bool_]
    blank: NDArray[np.bool_]
    overlap: int = OVERLAP
    merge: Merge = "mean"

    def __call__(
        self, rows: Ints, read: int | None = None, progress: Callable[[int], object] | None = None
    ) -> Floats:
        """Logits (rows, labels), of the first `read` tokens if given; windows by their tokens."""
        windows = [
            (position, start, end)
            for position, row in enumerate(rows)
            for start, end in self.windows_of(int(row), read)
        ]
        sizes = np.array([end - start for _, start, end in windows])
        found = np.zeros((len(windows), self.model.config.num_labels))
        for group in group_by_length(sizes, _BATCH_TOKENS):
            pieces = [self._piece(rows, windows[index]) for index in group]
            logits = infer(self.model, *pad(pieces))
            found[group] = logits
            if progress is not None:
                progress(int(sizes[group].sum()))
        return self._merged(np.array([position for position, _, _ in windows]), sizes, found)

    def _merged(self, owners: Ints, sizes: Ints, found: Floats) -> Floats:
        """Each document's logits from those of its windows, which stand side by side."""
        certainty = softmax(found).max(axis=1)
        merged = []
        for of_document in np.split(np.arange(len(owners)), np.flatnonzero(np.diff(owners)) + 1):
            weights = window_weights(
                np.maximum(1, sizes[of_document]).tolist(),
                certainty[of_document].tolist(),
                self.merge,
            )
            merged.append(np.average(found[of_document], axis=0, weights=weights))
        return np.array(merged)

    def _piece(self, rows: Ints, window: tuple[int, int, int]) -> Ints:
        position, start, end = window
        return self.tokens.document(int(rows[position]), start, end)

    def windows_of(self, row: int, read: int | None = None) -> list[tuple[int, int]]:
        """Where a document is cut, or the first `read` tokens of it."""
        if self.tokens.begins is None:
            return self.windows(self.tokens.document(row, 0, read))
        first, last = int(self.tokens.offsets[row]), int(self.tokens.offsets[row + 1])
        last = last if read is None else min(last, first + read)
        return self._cut(np.asarray(self.tokens.begins[first:last]))

    def windows(self, ids: Ints) -> list[tuple[int, int]]:
        """Where a document is cut: one window if it fits."""
        starts = self.begins[ids]
        starts[1:] |= self.blank[ids[:-1]]
        return self._cut(starts)

    def _cut(self, starts: NDArray[np.bool_]) -> list[tuple[int, int]]:
        if len(starts) <= self.max_tokens:
            return [(0, len(starts))]
        overlap = min(self.overlap, self.max_tokens // 2)
        return cut_windows(len(starts), starts.__getitem__, self.max_tokens, overlap)


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
    merge: Merge = "mean",
) -> Predictor:
    """A predictor in evaluation mode, with word beginnings from the vocabulary."""
    begins = np.ones(vocabulary.size, dtype=np.bool_)
    blank = np.zeros(vocabulary.size, dtype=np.bool_)
    if vocabulary.kind == "bpe":
        for token, index in vocabulary.tokenizer.get_vocab().items():
            begins[index] = token[0] in "ĠĊĉč"  # a space, line feed, tab or return
            blank[index] = all(character in "ĠĊĉč" for character in token)
    return Predictor(model.eval(), tokens, max_tokens, begins, blank, overlap, merge)
