"""Sparse Transformer: a window and every stride-th token, or a block and summary tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from models.attention.base import Attention
from models.attention.masking import pad_rows, with_neighbours
from models.errors import ConfigError


class SparseAttention(Attention):
    """sm over A₁ ∪ A₂, in both directions and in every head

    strided: A₁ is |i − j| ≤ stride, A₂ all j with i − j a multiple of the stride.
    fixed: A₁ is i's own block of `stride` tokens, A₂ the last `summary` tokens of every block.
    """

    half_safe = True

    def __init__(
        self, heads: int, head_dim: int, *, pattern: str, stride: int, summary: int
    ) -> None:
        super().__init__(heads, head_dim)
        if pattern == "fixed" and summary > stride:
            raise ConfigError(f"sparse: summary must be at most stride ({stride}); got {summary}")
        self.pattern = pattern
        self.stride = stride
        self.summary = summary

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        """Score near and far keys apart, weigh both in one softmax."""
        n = q.shape[2]
        blocks = (n + self.stride - 1) // self.stride
        queries = self._cut(q * self.head_dim**-0.5, blocks)  # (batch, heads, blocks, stride, d)
        attend = self._strided if self.pattern == "strided" else self._fixed
        return attend(queries, k, v, mask, blocks).flatten(2, 3)[:, :, :n]

    def _strided(self, queries: Tensor, k: Tensor, v: Tensor, mask: Tensor, blocks: int) -> Tensor:
        stride = self.stride
        near_k, near_v = (with_neighbours(x, stride, blocks) for x in (k, v))
        # A column's tokens, (batch, heads, stride, blocks, d), are multiples of the stride apart.
        far_k, far_v = (self._cut(x, blocks).transpose(2, 3) for x in (k, v))
        near = queries @ near_k.transpose(-1, -2)  # (batch, heads, blocks, stride, 3 stride)
        far = (queries.transpose(2, 3) @ far_k.transpose(-1, -2)).transpose(2, 3)

        real = mask[:, None, :, None]  # (batch, 1, n, 1)
        row = torch.arange(stride, device=k.device)[:, None]
        column = torch.arange(3 * stride, device=k.device)
        inside = (row + stride - column).abs() <= stride  # (stride, 3 stride)
        near_keep = with_neighbours(real, stride, blocks).transpose(-1, -2) & inside
        block = torch.arange(blocks, device=k.device)
        beyond = (block[:, None] - block).abs() > 1  # (blocks, blocks): not in the window as well
        far_keep = self._cut(real, blocks)[..., 0].transpose(-1, -2)  # (batch, 1, stride, blocks)
        far_keep = far_keep[:, :, None] & beyond[:, None]  # (batch, 1, blocks, stride, blocks)

        near_part, far_part = _weigh(near, near_keep, far, far_keep)
        out: Tensor = near_part @ near_v + (far_part.transpose(2, 3) @ far_v).transpose(2, 3)
        return out

    def _fixed(self, queries: Tensor, k: Tensor, v: Tensor, mask: Tensor, blocks: int) -> Tensor:
        near_k, near_v = self._cut(k, blocks), self._cut(v, blocks)
        near_keep = self._cut(mask[:, None, :, None], blocks).transpose(-1, -2)
        first = self.stride - self.summary
        far_k, far_v = (x[:, :, :, first:].flatten(2, 3)[:, :, None] for x in (near_k, near_v))
        block = torch.arange(blocks, device=k.device)
        elsewhere = (block[:, None, None] != block[:, None]).expand(-1, -1, self.summary)
        far_keep = near_keep[..., first:].flatten(2, 4)[:, :, None, None, :]
        far_keep = far_keep & elsewhere.flatten(1, 2)[:, None]  # (batch, 1, blocks, 1, summaries)
        near = queries @ near_k.transpose(-1, -2)  # (batch, heads, blocks, stride, stride)
        far = queries @ far_k.transpose(-1, -2)  # (batch, heads, blocks, stride, summaries)
        near_part, far_part = _weigh(near, near_keep, far, far_keep)
        out: Tensor = near_part @ near_v + far_part @ far_v
        return out

    def _cut(self, x: Tensor, blocks: int) -> Tensor:
        """(batch, heads, n, d) to (batch, heads, blocks, stride, d)."""
        batch, heads, n, d = x.shape
        padded = pad_rows(x, blocks * self.stride - n)
        return padded.view(batch, heads, blocks, self.stride, d)


def _weigh(near: Tensor, near_keep: Tensor, far: Tensor, far_keep: Tensor) -> tuple[Tensor, Tensor]:
    """One softmax over near and far scores, in its two parts."""
    lowest = torch.finfo(near.dtype).min
    scores = [near.masked_fill(~near_keep, lowest), far.masked_fill(~far_keep, lowest)]
    weights = torch.cat(scores, dim=-1).softmax(dim=-1)
    return weights[..., : near.shape[-1]], weights[..., near.shape[-1] :]
