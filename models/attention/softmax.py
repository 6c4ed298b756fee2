"""Softmax attention, the baseline."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from models.attention.base import Attention
from models.attention.masking import masked_softmax


def fused_softmax_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """Softmax attention by the engine's fused kernel.

    A document without tokens sees its first, blank key, so that no row is without any.
    """
    first = torch.arange(mask.shape[1], device=mask.device) == 0
    visible = (mask | first)[:, None, None, :]  # (batch, 1, 1, n)
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=visible)


class SoftmaxAttention(Attention):
    """sm(q kᵀ / √d) v"""

    half_safe = True

    def __init__(self, heads: int, head_dim: int, *, fused: bool) -> None:
        super().__init__(heads, head_dim)
        self.fused = fused

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        """Every token sees every token."""
        if self.fused:
            return fused_softmax_attention(q, k, v, mask)
        scores = (q * self.head_dim**-0.5) @ k.transpose(-1, -2)  # (batch, heads, n, n)
        return masked_softmax(scores, mask[:, None, None, :]) @ v
