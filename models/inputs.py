"""What is read of a document: a vector for each token and each pair, and what each counts.

A pair of neighbours (`not good`) means more than its parts. There are too many pairs for a table
with a row each, so a pair's row is a hash of its two ids. Blocks read the tokens' vectors; the
pairs' vectors, which are short, are added to the first entries of what the blocks made of a
pair's second token.

What is said ten times in a document is not ten times as telling: repeats are damped where the
network takes its mean over the document. And a document often says at its beginning what it is
about: the mean of its opening can be given a share of its own.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from models.config import ModelConfig

#: Spreads the pairs of an id with any other over the table; odd, about 2^32 over the golden ratio.
PAIR_FACTOR = 2_654_435_761


class TokenVectors(nn.Embedding):
    """The vectors of tokens and pairs, and their weights in the document's mean."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config.vocab_size, config.width)
        self.config = config
        nn.init.normal_(self.weight, std=0.1)
        self.pairs = nn.Embedding(config.pairs, config.pair_width) if config.pairs else None
        if self.pairs is not None:
            nn.init.zeros_(self.pairs.weight)

    def set_tables(self, single: Tensor, pairs: Tensor) -> None:
        """Take these vectors; tables one under the other are told apart by `table` in `forward`."""
        self.weight = nn.Parameter(single)
        if self.pairs is not None:
            self.pairs.weight = nn.Parameter(pairs)

    def forward(self, ids: Tensor, table: Tensor | None = None) -> Tensor:
        """Vectors (batch, n, width) of tokens (batch, n).

        `table` (batch,) says which of several tables, one under the other, a document is read
        with: training keeps one for each fold.
        """
        rows = ids if table is None else ids + table[:, None] * self.config.vocab_size
        return functional.embedding(rows, self.weight)

    def pooled(
        self, states: Tensor, ids: Tensor, mask: Tensor, table: Tensor | None = None
    ) -> Tensor:
        """States (batch, n, width), weighted for the mean, with their pairs; 0 in padding."""
        config = self.config
        states = states * self._weights(ids, mask, mask)
        if self.pairs is None:
            return states
        hashed = pair_hash(ids)  # (batch, n)
        ends_pair = mask & (torch.arange(ids.shape[1], device=ids.device) > 0)
        rows = hashed % config.pairs
        rows = rows if table is None else rows + table[:, None] * config.pairs
        # Pairs are counted in a table as small as the vocabulary: collisions damp a little more.
        weights = self._weights(hashed % config.vocab_size, ends_pair, mask)
        pairs = self.pairs(rows) * weights  # (batch, n, pair_width)
        return states + functional.pad(pairs, (0, config.width - config.pair_width))

    def _weights(self, ids: Tensor, counted: Tensor, mask: Tensor) -> Tensor:
        """What each token or pair weighs in the mean; a document's sum to its tokens.

        (batch, n, 1)
        """
        config = self.config
        weights = self._damped(ids, counted, mask)
        if config.opening:
            early = torch.arange(ids.shape[1], device=ids.device) < config.opening  # (n,)
            opening = self._damped(ids, counted & early, mask)
            weights = (1 - config.opening_share) * weights + config.opening_share * opening
        return weights[:, :, None].to(self.weight.dtype)

    def _damped(self, ids: Tensor, counted: Tensor, mask: Tensor) -> Tensor:
        """(batch, n)"""
        if self.config.damp_repeats:
            weights = repetition_weights(ids, counted, self.config.vocab_size)
        else:
            weights = counted.float()
        scale = mask.float().sum(dim=1) / weights.sum(dim=1).clamp(min=1e-6)  # (batch,)
        return weights * scale[:, None]


def pair_hash(ids: Tensor) -> Tensor:
    """A number for each token and the one before it (batch, n); the first has 0 before it."""
    before = functional.pad(ids[:, :-1], (1, 0))
    return before * PAIR_FACTOR + ids


def repetition_weights(ids: Tensor, counted: Tensor, size: int) -> Tensor:
    """(1 + log c) / c for an id that is counted c times in its document: (batch, n).

    What is said ten times then weighs as much as about three single words, not ten. Weights are
    0 where nothing is counted.
    """
    real = counted.float()
    histogram = real.new_zeros(ids.shape[0], size).scatter_add(1, ids * counted, real)
    count = histogram.gather(1, ids * counted).clamp(min=1)  # (batch, n)
    return (1 + count.log()) / count * real
