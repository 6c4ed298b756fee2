"""Performer: softmax attention by random features (FAVOR+)."""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Tensor

from models.attention.base import Attention

#: Added to every feature, so that no divisor vanishes. The positive and the ReLU features' are the
#: published ones; the hyperbolic ones were published without and get one too small to be seen.
EPSILON = {"positive": 1e-6, "hyperbolic": 1e-9, "relu": 1e-3}
#: A divisor of trigonometric features, which may have any sign, is kept this far from zero.
SMALLEST_DIVISOR = 1e-6


def orthogonal_features(features: int, dim: int, seed: int) -> Tensor:
    """Rows orthogonal in blocks of `dim`, each as long as a Gaussian row: (features, dim)."""
    generator = torch.Generator().manual_seed(seed)
    blocks = []
    for _ in range(-(-features // dim)):
        gaussian = torch.randn(dim, dim, generator=generator, dtype=torch.float64)
        q, r = torch.linalg.qr(gaussian)
        blocks.append((q * r.diagonal().sign()).T)  # signs make the rotation uniform
    rows = torch.cat(blocks)[:features]
    norms = torch.randn(features, dim, generator=generator, dtype=torch.float64).norm(dim=1)
    projection: Tensor = (rows * norms[:, None]).float()
    return projection


class PerformerAttention(Attention):
    """φ(q) (φ(k)ᵀ v) / (φ(q) Σ φ(k)), φ random features of exp(q·k / √d), or relu(Wx)

    Every exponent is at most zero: the largest projection of a query is taken away from its
    own features, the largest of a document's keys from theirs; both cancel in the ratio.
    """

    def __init__(
        self, heads: int, head_dim: int, *, features: int, feature_map: str, seed: int
    ) -> None:
        super().__init__(heads, head_dim)
        self.feature_map = feature_map
        self.register_buffer("projection", orthogonal_features(features, head_dim, seed))
        self.projection: Tensor  # (features, d)

    @classmethod
    def stack(cls, layers: int, heads: int, head_dim: int, **params: Any) -> list[Self]:
        """Draw other features for every layer."""
        seed = params.pop("seed")
        return [cls(heads, head_dim, seed=seed + layer, **params) for layer in range(layers)]

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        """Sum the keys' features once, read them with every query's."""
        real = mask[:, None, :, None]  # (batch, 1, n, 1)
        scale = self.head_dim**-0.25
        phi_q = self._features(q * scale, real, over_document=False)
        phi_k = self._features(k * scale, real, over_document=True) * real
        summary = phi_k.transpose(-1, -2) @ v  # (batch, heads, m, d)
        total = phi_k.sum(dim=2)[..., None]  # (batch, heads, m, 1)
        divisor = phi_q @ total  # (batch, heads, n, 1)
        if self.feature_map == "trigonometric":
            divisor = divisor + 2 * SMALLEST_DIVISOR * (divisor.abs() <= SMALLEST_DIVISOR)
        return (phi_q @ summary) / divisor

    def _features(self, x: Tensor, real: Tensor, *, over_document: bool) -> Tensor:
        """φ(x), up to a factor per query or per document: (batch, heads, n, m or 2 m)."""
        u = x @ self.projection.to(x.dtype).T  # (batch, heads, n, m)
        if self.feature_map == "relu":
            return u.relu() + EPSILON["relu"]
        half_norm = x.square().sum(dim=-1, keepdim=True) / 2
        ratio = self.projection.shape[0] ** -0.5
        if self.feature_map == "trigonometric":
            largest = _largest(half_norm, real) if over_document else half_norm
            size = (half_norm - largest).clamp(max=0).exp()
            waves: Tensor = ratio * size * torch.cat([u.cos(), u.sin()], dim=-1)
            return waves
        if self.feature_map == "hyperbolic":
            u = torch.cat([u, -u], dim=-1)
        top = u.amax(dim=-1, keepdim=True)  # (batch, heads, n, 1)
        if over_document:
            top = _largest(top, real)
        exponent = (u - half_norm - top).clamp(max=0)
        positive: Tensor = ratio * (exponent.exp() + EPSILON[self.feature_map])
        return positive


def _largest(x: Tensor, real: Tensor) -> Tensor:
    """Largest value over a document's real tokens: (batch, heads, n, 1) to (…, 1, 1)."""
    return x.masked_fill(~real, torch.finfo(x.dtype).min).amax(dim=2, keepdim=True)
