"""What is read of a document: a vector for each token and each pair, and what each counts.

A pair of neighbours (`not good`) means more than its parts. There are too many pairs for a table
with a row each, so a pair's row is a hash of its two ids. Blocks read the tokens' vectors; the
pairs' vectors, which are short, are added to the first entries of what the blocks made of a
pair's second token.

A document often says at its beginning what it is about: a token there can have a second vector,
as short as a pair's, which is added in the same way.

What is said ten times in a document is not ten times as telling: repeats are damped where the
network takes its mean over the document.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from models.config import ModelConfig
from models.errors import ConfigError

#: Spreads the pairs of an id with any other over the table; odd, about 2^32 over the golden ratio.
PAIR_FACTOR = 2_654_435_761
#: Rows of a table of pairs, and entries of its vocabulary, for which rows are computed exactly.
MAX_ROWS = 1 << 22

_LARGEST = 1 << 23  # two numbers below it add up to less than 2^24


class TokenVectors(nn.Embedding):
    """The vectors of tokens and pairs, and their weights in the document's mean."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config.vocab_size, config.width)
        self.config = config
        nn.init.normal_(self.weight, std=0.1)
        self.pairs = nn.Embedding(config.pairs, config.pair_width) if config.pairs else None
        if self.pairs is not None:
            nn.init.zeros_(self.pairs.weight)
        self.opening = (
            nn.Embedding(config.vocab_size, config.pair_width) if config.opening else None
        )
        if self.opening is not None:
            nn.init.zeros_(self.opening.weight)

    def set_tables(self, single: Tensor, pairs: Tensor, opening: Tensor) -> None:
        """Take these vectors; tables one under the other are told apart by `table` in `forward`."""
        self.weight = nn.Parameter(single)
        for part, vectors in ((self.pairs, pairs), (self.opening, opening)):
            if part is not None:
                part.weight = nn.Parameter(vectors)

    def forward(self, ids: Tensor, table: Tensor | None = None) -> Tensor:
        """Vectors (batch, n, width) of tokens (batch, n).

        `table` (batch,) says which of several tables, one under the other, a document is read
        with: training keeps one for each fold.
        """
        return functional.embedding(_in_table(ids, table, self.config.vocab_size), self.weight)

    def pooled(
        self, states: Tensor, ids: Tensor, mask: Tensor, table: Tensor | None = None
    ) -> Tensor:
        """States (batch, n, width), weighted for the mean, with their pairs; 0 in padding."""
        config = self.config
        states = states * self._weights(ids, mask, mask)
        if self.pairs is None:
            return states
        place = torch.arange(ids.shape[1], device=ids.device)  # (n,)
        rows = _in_table(pair_rows(ids, config.pairs, config.vocab_size), table, config.pairs)
        # Pairs are counted in a table as small as the vocabulary: collisions damp a little more.
        counters = pair_rows(ids, config.vocab_size, config.vocab_size)  # (batch, n)
        weights = self._weights(counters, mask & (place > 0), mask)
        short = self.pairs(rows) * weights  # (batch, n, pair_width)
        if self.opening is not None:
            rows = _in_table(ids, table, config.vocab_size)
            weights = self._weights(ids, mask & (place < config.opening), mask)
            short = short + self.opening(rows) * weights
        return states + functional.pad(short, (0, config.width - config.pair_width))

    def _weights(self, ids: Tensor, counted: Tensor, mask: Tensor) -> Tensor:
        """What each counted token or pair weighs in the mean; a document's sum to its tokens.

        (batch, n, 1)
        """
        if self.config.damp_repeats:
            weights = repetition_weights(ids, counted, self.config.vocab_size)
        else:
            weights = counted.float()
        scale = mask.float().sum(dim=1) / weights.sum(dim=1).clamp(min=1e-6)  # (batch,)
        return (weights * scale[:, None])[:, :, None].to(self.weight.dtype)


def _in_table(rows: Tensor, table: Tensor | None, size: int) -> Tensor:
    """Rows (batch, n) in the document's own of several tables of this size."""
    return rows if table is None else rows + table[:, None] * size


def pair_rows(ids: Tensor, rows: int, vocab_size: int) -> Tensor:
    """Each token's row (batch, n) in a table for it and the one before; the first has 0 before it.

    The row is (before * PAIR_FACTOR + id) % rows. No number on the way exceeds 2^24: OpenVINO
    computes whole numbers in float32, whatever the graph declares, and is exact only up to there.
    """
    if rows > MAX_ROWS or vocab_size > MAX_ROWS:
        raise ConfigError(
            f"a table of pairs has at most {MAX_ROWS} rows and ids; got {rows} and {vocab_size}"
        )
    # Not `pad`: the CUDA provider of ONNX Runtime pads no whole numbers.
    before = torch.cat([torch.zeros_like(ids[:, :1]), ids[:, :-1]], dim=1)
    return (_times(before, PAIR_FACTOR % rows, rows, vocab_size) + ids % rows) % rows


def _times(x: Tensor, factor: int, rows: int, below: int) -> Tensor:
    """(x * factor) % rows for x from 0 to below - 1, digit by digit where it would grow large."""
    if (below - 1) * factor < _LARGEST:
        return x * factor % rows
    base = _LARGEST // rows  # at least 2
    high = _times(x // base, factor, rows, (below - 1) // base + 1)
    return (high * base + x % base * factor) % rows


def repetition_weights(ids: Tensor, counted: Tensor, size: int) -> Tensor:
    """(1 + log c) / c for an id that is counted c times in its document: (batch, n).

    What is said ten times then weighs as much as about three single words, not ten. Weights are
    0 where nothing is counted.
    """
    real = counted.float()
    histogram = real.new_zeros(ids.shape[0], size).scatter_add(1, ids * counted, real)
    count = histogram.gather(1, ids * counted).clamp(min=1)  # (batch, n)
    return (1 + count.log()) / count * real
