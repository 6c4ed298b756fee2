"""Skyformer: kernelized attention by Nyström's method."""

from __future__ import annotations

import torch
from torch import Tensor

from models.attention.base import Attention
from models.attention.inverse import iterative_inverse
from models.attention.kernelized import gaussian_kernel
from models.attention.masking import gather_rows, segment_bounds


def skyformer_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    landmarks: Tensor,
    valid: Tensor,
    *,
    gamma: float,
    iterations: int,
) -> Tensor:
    """Nyström's method through given landmarks, all vectors scaled by d^-¼ already.

    landmarks (batch, heads, m, d); valid (batch, m) is false for those to leave out.
    """
    both = (valid[:, :, None] & valid[:, None, :])[:, None]  # (batch, 1, m, m)
    eye = torch.eye(valid.shape[1], dtype=q.dtype, device=q.device)
    M = gaussian_kernel(landmarks, landmarks) * both + gamma * eye
    weight = M.sum(dim=-1).rsqrt()  # (batch, heads, m)
    Z = iterative_inverse(weight[..., :, None] * M * weight[..., None, :], iterations)
    weight = weight * valid[:, None, :]
    summary = gaussian_kernel(landmarks, k) @ v  # (batch, heads, m, d)
    summary = weight[..., None] * (Z @ (weight[..., None] * summary))
    return gaussian_kernel(q, landmarks) @ summary  # (batch, heads, n, d)


class SkyformerAttention(Attention):
    """κ(q,w) D^-½ Z D^-½ κ(w,k) v with landmarks w taken evenly from queries and keys."""

    def __init__(
        self, heads: int, head_dim: int, *, landmarks: int, gamma: float, iterations: int
    ) -> None:
        super().__init__(heads, head_dim)
        self.landmarks = landmarks
        self.gamma = gamma
        self.iterations = iterations

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        """Take landmarks, then apply the method."""
        scale = self.head_dim**-0.25
        q, k = q * scale, k * scale
        lengths = mask.sum(dim=1)
        from_q = self.landmarks - self.landmarks // 2
        q_landmarks, q_valid = _strided_rows(q, lengths, from_q)
        k_landmarks, k_valid = _strided_rows(k, lengths, self.landmarks - from_q)
        return skyformer_attention(
            q,
            k,
            v,
            torch.cat([q_landmarks, k_landmarks], dim=2),
            torch.cat([q_valid, k_valid], dim=1),
            gamma=self.gamma,
            iterations=self.iterations,
        )


def _strided_rows(x: Tensor, lengths: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The first row of each of `count` segments of the document; empty segments are not valid."""
    begin, end = segment_bounds(lengths, count)  # (batch, count)
    return gather_rows(x, begin.clamp(max=x.shape[2] - 1)[:, None]), begin < end
