"""Linear attention with the ELU feature map."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from models.attention.base import Attention

EPSILON = 1e-6


class LinearAttention(Attention):
    """φ(q) (φ(k)ᵀ v) / (φ(q) Σ φ(k) + 1e-6), φ = elu + 1"""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        """Sum keys and values once, read them with every query."""
        phi_q = functional.elu(q) + 1
        phi_k = (functional.elu(k) + 1) * mask[:, None, :, None].to(k.dtype)
        summary = phi_k.transpose(-1, -2) @ v  # (batch, heads, d, d)
        total = phi_k.sum(dim=2)[..., None]  # (batch, heads, d, 1)
        return (phi_q @ summary) / (phi_q @ total + EPSILON)
