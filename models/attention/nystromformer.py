"""Nyströmformer: softmax attention through the means of segments."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from models.attention.base import Attention
from models.attention.convolution import DepthwiseConvolution
from models.attention.inverse import iterative_inverse
from models.attention.masking import masked_softmax, segment_bounds, segment_means


class NystromAttention(Attention):
    """sm(q k̃ᵀ) Z sm(q̃ kᵀ) v + conv(v), where q̃ and k̃ are means of a document's segments.

    A document with no more tokens than landmarks is its own landmarks: Z (B v) is then v in
    exact arithmetic, so v itself is used and the result is softmax attention exactly.
    """

    def __init__(
        self, heads: int, head_dim: int, *, landmarks: int, iterations: int, conv_kernel: int
    ) -> None:
        super().__init__(heads, head_dim)
        self.landmarks = landmarks
        self.iterations = iterations
        self.convolution: nn.Module | None = None
        if conv_kernel > 1:
            self.convolution = DepthwiseConvolution(heads, conv_kernel)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        """Attend to the landmarks, which have attended to the document."""
        scale = self.head_dim**-0.25
        q, k = q * scale, k * scale
        lengths = mask.sum(dim=1)
        begin, end = segment_bounds(lengths, self.landmarks)
        valid = (begin < end)[:, None, None, :]  # (batch, 1, 1, m)
        q_means = segment_means(q, lengths, self.landmarks)  # (batch, heads, m, d)
        k_means = segment_means(k, lengths, self.landmarks)

        F = masked_softmax(q @ k_means.transpose(-1, -2), valid)  # (batch, heads, n, m)
        A = masked_softmax(q_means @ k_means.transpose(-1, -2), valid)  # (batch, heads, m, m)
        A = A * valid.transpose(-1, -2)
        B = masked_softmax(q_means @ k.transpose(-1, -2), mask[:, None, None, :])
        summary = iterative_inverse(A, self.iterations) @ (B @ v)  # (batch, heads, m, d)

        own_landmarks = (lengths <= self.landmarks)[:, None, None, None]
        v_means = segment_means(v, lengths, self.landmarks)
        out = F @ torch.where(own_landmarks, v_means, summary)
        return out if self.convolution is None else out + self.convolution(v)
