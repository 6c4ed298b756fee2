"""BigBird: softmax attention to a window, global and random blocks of tokens."""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Tensor

from models.attention.base import Attention
from models.attention.masking import gather_rows, masked_softmax, pad_rows, with_neighbours

#: Rows of the table of random numbers; documents with more blocks go through it again.
TABLE = 1024
#: A random number is one of so many: float16, in which bundles hold large tensors, has them all.
RESOLUTION = 1 << 11


class BigBirdAttention(Attention):
    """sm over the neighbouring, the global and some random blocks

    Blocks of `block` tokens are counted from a document's start. Its first and last block are
    global: they see and are seen by all. Every other block sees itself, its two neighbours and
    `random` blocks out of the rest.
    """

    half_safe = True

    def __init__(self, heads: int, head_dim: int, *, block: int, random: int, seed: int) -> None:
        super().__init__(heads, head_dim)
        self.block = block
        self.random = random
        generator = torch.Generator().manual_seed(seed)
        draws = torch.randint(RESOLUTION, (heads, TABLE, random), generator=generator)
        # Whole numbers, so that every engine draws alike; as floats, as weights are stored.
        self.register_buffer("draws", draws.float())
        self.draws: Tensor

    @classmethod
    def stack(cls, layers: int, heads: int, head_dim: int, **params: Any) -> list[Self]:
        """Draw other blocks for every layer."""
        seed = params.pop("seed")
        return [cls(heads, head_dim, seed=seed + layer, **params) for layer in range(layers)]

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        """Every block with what it sees, then the global blocks with everything."""
        n = q.shape[2]
        size = self.block
        blocks = (n + size - 1) // size
        q = q * self.head_dim**-0.5
        lengths = mask.sum(dim=1)
        last = (lengths.clamp(min=1) - 1) // size  # (batch,) number of a document's last block
        ends = torch.stack([torch.zeros_like(last), last], dim=1)  # (batch, 2)
        rows = (ends[:, :, None] * size + torch.arange(size, device=q.device)).flatten(1)
        is_row = rows < lengths[:, None]  # (batch, 2 size)
        is_row = is_row & ((torch.arange(2 * size, device=q.device) < size) | (last > 0)[:, None])
        rows = rows.clamp(max=n - 1)[:, None]  # (batch, 1, 2 size)

        blocks_out = self._attend_in_blocks(q, k, v, mask, rows, is_row, last, blocks)
        scores = gather_rows(q, rows) @ k.transpose(-1, -2)  # (batch, heads, 2 size, n)
        of_globals = masked_softmax(scores, mask[:, None, None, :]) @ v
        position = torch.arange(n, device=q.device)
        in_last = position - last[:, None] * size  # (batch, n)
        row = torch.where(in_last >= 0, (size + in_last).clamp(max=2 * size - 1), position)
        row = torch.where(position < size, position, row).clamp(max=2 * size - 1)
        is_global = ((position < size) | (in_last >= 0))[:, None, :, None]
        return torch.where(is_global, gather_rows(of_globals, row[:, None]), blocks_out)

    def _attend_in_blocks(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor,
        rows: Tensor,
        is_row: Tensor,
        last: Tensor,
        blocks: int,
    ) -> Tensor:
        """What each block sees; rows (batch, 1, 2 size) are those of the global blocks."""
        batch, heads, n, d = q.shape
        size = self.block
        cut = (batch, heads, blocks, size, d)
        queries, keys, values = (pad_rows(x, blocks * size - n).view(cut) for x in (q, k, v))
        drawn, exists = self._random_blocks(last, blocks)  # (batch, heads, blocks, random)
        drawn = drawn.flatten(2)

        def seen(x: Tensor, x_cut: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            random = gather_rows(x_cut.flatten(3), drawn).view(batch, heads, blocks, -1, d)
            return gather_rows(x, rows)[:, :, None], with_neighbours(x, size, blocks), random

        seen_k, seen_v = seen(k, keys), seen(v, values)
        position = torch.arange(n, device=q.device)
        local = mask & (position >= size) & (position < last[:, None] * size)
        near = with_neighbours(local[:, None, :, None], size, blocks).transpose(-1, -2)
        random = exists[..., None].expand(-1, -1, -1, -1, size).flatten(3)[:, :, :, None]
        keep = (is_row[:, None, None, None], near, random)
        scores = torch.cat(
            [
                (queries @ x.transpose(-1, -2)).masked_fill(~y, torch.finfo(q.dtype).min)
                for x, y in zip(seen_k, keep, strict=True)
            ],
            dim=-1,
        )  # (batch, heads, blocks, size, (5 + random) size)
        widths = [2 * size, 3 * size, self.random * size]
        weights = torch.split(scores.softmax(dim=-1), widths, dim=-1)
        out = sum((w @ x for w, x in zip(weights, seen_v, strict=True)), torch.zeros_like(queries))
        return out.flatten(2, 3)[:, :, :n]

    def _random_blocks(self, last: Tensor, blocks: int) -> tuple[Tensor, Tensor]:
        """For every block some of those it would not see, and whether there are as many.

        The candidates are cut into as many equal parts as blocks are drawn, one from each.
        """
        number = torch.arange(blocks, device=last.device)
        below = (number - 2).clamp(min=0)  # candidates 1 … i − 2, (blocks,)
        above = (last[:, None] - number - 2).clamp(min=0)  # candidates i + 2 … last − 1
        count = (below + above)[:, None, :, None]  # (batch, 1, blocks, 1)
        part = torch.arange(self.random + 1, device=last.device)
        edges = part * count // self.random  # (batch, 1, blocks, random + 1)
        width = edges[..., 1:] - edges[..., :-1]
        draws = self.draws[:, number % TABLE].long()  # (heads, blocks, random)
        candidate = edges[..., :-1] + draws * width // RESOLUTION
        below = below[:, None]
        block = torch.where(
            candidate < below, candidate + 1, candidate - below + number[:, None] + 2
        )
        return block.clamp(max=blocks - 1), (width > 0).expand_as(block)
