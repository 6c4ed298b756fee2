"""Longformer: softmax attention inside a window, plus a few global tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from models.attention.base import Attention, blank_padding
from models.attention.masking import masked_softmax, pad_rows, shorter, with_neighbours
from models.errors import ConfigError


class LongformerAttention(Attention):
    """sm over |i − j| ≤ window and the global tokens

    The document is cut into blocks of the window's size, so that a block's queries find all
    their neighbours in the block, the one before and the one after.
    """

    half_safe = True

    def __init__(
        self, heads: int, head_dim: int, *, window: int, global_tokens: int, own_projections: bool
    ) -> None:
        super().__init__(heads, head_dim)
        if own_projections and not global_tokens:
            raise ConfigError("longformer: own_projections needs global_tokens; got 0 of them")
        self.projects_globals = own_projections
        self.window = window
        self.global_tokens = global_tokens

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor, *of_globals: Tensor) -> Tensor:
        """With `own_projections` three more: q, k and v of what global tokens see."""
        out = super().forward(q, k, v, mask)
        if not of_globals:
            return out
        q, k, v = of_globals
        self._check(q, k, v, mask)
        q, k, v = (blank_padding(x, mask) for x in (q, k, v))
        return blank_padding(self._with_globals(out, q * self.head_dim**-0.5, k, v, mask), mask)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        """Local attention with the global keys, then the global queries' own attention."""
        q = q * self.head_dim**-0.5
        out = self._attend_locally(q, k, v, mask)
        return self._with_globals(out, q, k, v, mask) if self.global_tokens else out

    def _with_globals(self, out: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        """The output with what the global tokens see in their rows."""
        n = q.shape[2]
        scores = self._globals(q) @ k.transpose(-1, -2)  # (batch, heads, g, n)
        from_all = masked_softmax(scores, mask[:, None, None, :]) @ v  # (batch, heads, g, d)
        is_global = torch.arange(n, device=q.device)[:, None] < self.global_tokens
        return torch.where(is_global, pad_rows(from_all, n)[:, :, :n], out)

    def _attend_locally(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        batch, heads, n, d = q.shape
        size = shorter(self.window, n)  # a short document is one block
        blocks = (n + size - 1) // size
        near_k = with_neighbours(k, size, blocks)  # (batch, heads, blocks, 3 size, d)
        near_v = with_neighbours(v, size, blocks)
        keep = self._visible(mask, size, blocks)  # (batch, 1, blocks, size, 3 size)
        padded = pad_rows(q, blocks * size - n)
        queries = padded.view(batch, heads, blocks, size, d)
        scores = queries @ near_k.transpose(-1, -2)  # (batch, heads, blocks, size, 3 size)
        if self.global_tokens == 0:
            out = masked_softmax(scores, keep) @ near_v
        else:
            far_k, far_v = self._globals(k)[:, :, None], self._globals(v)[:, :, None]
            far_keep = self._globals(mask[:, None, :, None])[:, :, None, None, :, 0]
            far_scores = queries @ far_k.transpose(-1, -2)  # (batch, heads, blocks, size, g)
            weights = masked_softmax(
                torch.cat([far_scores, scores], dim=-1),
                torch.cat([far_keep.expand(-1, -1, blocks, size, -1), keep], dim=-1),
            )
            g = self.global_tokens
            out = weights[..., :g] @ far_v + weights[..., g:] @ near_v
        return out.view(batch, heads, blocks * size, d)[:, :, :n]

    def _visible(self, mask: Tensor, size: int, blocks: int) -> Tensor:
        """Which neighbours a query sees: real, inside the window and not global."""
        positions = torch.arange(mask.shape[1], device=mask.device)
        local = mask & (positions >= self.global_tokens)
        near = with_neighbours(local[:, None, :, None], size, blocks)[..., 0]
        row = torch.arange(size, device=mask.device)[:, None]
        column = torch.arange(3 * size, device=mask.device)[None, :]
        inside = (row + size - column).abs() <= self.window  # (size, 3 size)
        return near[:, :, :, None, :] & inside

    def _globals(self, x: Tensor) -> Tensor:
        """The first rows, also of a document that has fewer: (batch, heads, g, d)."""
        return pad_rows(x, self.global_tokens)[:, :, : self.global_tokens]
