"""Efficient attention: keys' softmax over positions, queries' softmax over features."""

from __future__ import annotations

import torch
from torch import Tensor

from models.attention.base import Attention


class EfficientAttention(Attention):
    """ρ(q) (ρ(k)ᵀ v), ρ(q) a softmax over each query's features, ρ(k) over the positions.

    The weights that a query gives to all tokens sum to one, as with softmax attention.
    """

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        """Summarise the document once per feature, mix the summaries for every query."""
        lowest = torch.finfo(k.dtype).min
        over_positions = k.masked_fill(~mask[:, None, :, None], lowest).softmax(dim=2)
        summary = over_positions.transpose(-1, -2) @ v  # (batch, heads, d, d)
        return q.softmax(dim=-1) @ summary  # (batch, heads, n, d)
