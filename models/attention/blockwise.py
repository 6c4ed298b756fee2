"""Blockwise attention: every head reads one block of the document per block of queries."""

from __future__ import annotations

import torch
from torch import Tensor

from models.attention.base import Attention
from models.attention.masking import gather_rows, masked_softmax


class BlockwiseAttention(Attention):
    """sm inside blocks: in head h the queries of block i read the keys of block i + h

    Position p of a document of `len` tokens is in block floor(p · m / len), m = min(blocks, len),
    and block numbers wrap around.
    """

    half_safe = True

    def __init__(self, heads: int, head_dim: int, *, blocks: int) -> None:
        super().__init__(heads, head_dim)
        self.blocks = blocks

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        """Cut into blocks, attend from block to block, and put the rows back in order."""
        batch, heads, n, d = q.shape
        lengths = mask.sum(dim=1)[:, None]  # (batch, 1)
        count = lengths.clamp(min=1, max=self.blocks)
        edges = torch.arange(self.blocks + 1, device=q.device)
        cuts = (edges.minimum(count) * lengths + count - 1) // count  # (batch, blocks + 1)
        begin = cuts[:, :-1]
        longest = (n + self.blocks - 1) // self.blocks
        steps = torch.arange(longest, device=q.device)
        positions = (begin[:, :, None] + steps).clamp(max=n - 1)  # (batch, blocks, longest)
        inside = steps < (cuts[:, 1:] - begin)[:, :, None]

        read = edges[:-1] + torch.arange(heads, device=q.device)[:, None]  # (heads, blocks)
        read = (read % count[:, :, None]).view(batch, heads * self.blocks, 1)
        read = read.expand(-1, -1, longest)  # (batch, heads * blocks, longest)
        shape = (batch, heads, self.blocks, longest, d)
        queries = gather_rows(q * self.head_dim**-0.5, positions.view(batch, 1, -1)).view(shape)
        read_positions = positions.gather(1, read).view(batch, heads, self.blocks * longest)
        keys = gather_rows(k, read_positions).view(shape)
        values = gather_rows(v, read_positions).view(shape)
        keep = inside.gather(1, read).view(batch, heads, self.blocks, 1, longest)
        scores = queries @ keys.transpose(-1, -2)  # (batch, heads, blocks, longest, longest)
        rows = masked_softmax(scores, keep) @ values
        rows = rows.view(batch, heads, self.blocks * longest, d)

        position = torch.arange(n, device=q.device)
        block = (begin[:, None, 1:] <= position[:, None]).sum(dim=2)  # (batch, n)
        row = block * longest + position - begin.gather(1, block)
        return gather_rows(rows, row.clamp(max=self.blocks * longest - 1)[:, None])
