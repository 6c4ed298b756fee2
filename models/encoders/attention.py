"""The attentions of checkpoints that no registered mechanism computes.

Each gives what `transformers` gives for one document alone and unpadded, whatever else is in the
batch.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from models.attention import Attention, create_layers
from models.attention.convolution import DepthwiseConvolution
from models.attention.longformer import LongformerAttention
from models.attention.masking import (
    gather_rows,
    masked_softmax,
    pad_rows,
    segment_bounds,
    segment_means,
    with_neighbours,
)
from models.attention.softmax import fused_softmax_attention
from models.encoders.config import OWN, EncoderConfig


def create_attentions(config: EncoderConfig) -> list[Attention]:
    """The attention of every layer."""
    heads, head_dim, params = config.heads, config.head_dim, dict(config.attention_params)
    if config.attention not in OWN:
        return create_layers(
            config.attention, layers=config.layers, heads=heads, head_dim=head_dim, **params
        )
    if config.attention == "softmax_alternating":
        return [
            _softmax(heads, head_dim)
            if layer % params["every"] == 0
            else LongformerAttention(
                heads, head_dim, window=params["window"], global_tokens=0, own_projections=False
            )
            for layer in range(config.layers)
        ]
    if config.attention == "longformer_projected":
        return [
            LongformerAttention(
                heads, head_dim, window=window, global_tokens=1, own_projections=True
            )
            for window in params["windows"]
        ]
    own: dict[str, type[Attention]] = {
        "bigbird_blocks": BigBirdAttention,
        "nystromformer_shared_start": SharedStartNystrom,
        "softmax_convolution": ConvolvedSoftmax,
        "softmax_relative": RelativeAttention,
    }
    return [own[config.attention](heads, head_dim, **params) for _ in range(config.layers)]


def _softmax(heads: int, head_dim: int) -> Attention:
    return create_layers("softmax", layers=1, heads=heads, head_dim=head_dim)[0]


class ConvolvedSoftmax(Attention):
    """Softmax attention plus a convolution: Nyströmformer with as many landmarks as tokens."""

    def __init__(self, heads: int, head_dim: int, *, conv_kernel: int) -> None:
        super().__init__(heads, head_dim)
        self.convolution = DepthwiseConvolution(heads, conv_kernel)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        """Every token sees every token, and the values of its neighbours."""
        out: Tensor = fused_softmax_attention(q, k, v, mask) + self.convolution(v)
        return out


class SharedStartNystrom(Attention):
    """Nyströmformer whose inverse starts from one scale for all heads, as checkpoints have it."""

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
        summary = self._inverse(A) @ (B @ v)  # (batch, heads, m, d)
        own_landmarks = (lengths <= self.landmarks)[:, None, None, None]
        out = F @ torch.where(own_landmarks, segment_means(v, lengths, self.landmarks), summary)
        return out if self.convolution is None else out + self.convolution(v)

    def _inverse(self, A: Tensor) -> Tensor:
        """Rounds of `iterative_inverse` from Aᵀ over the largest column sum of any head."""
        largest = A.sum(dim=-2).flatten(1).amax(dim=1)[:, None, None, None]
        Z = A.transpose(-1, -2) / largest
        for _ in range(self.iterations):
            AZ = A @ Z
            inner = 15 * AZ - AZ @ (7 * AZ - AZ @ AZ)
            Z = 0.25 * (13 * Z - Z @ inner)
        return Z


class RelativeBias(nn.Module):
    """What a distance adds to a score, by head: near ones each have a bucket, far ones share."""

    def __init__(self, heads: int, buckets: int, farthest: int = 128) -> None:
        super().__init__()
        self.buckets = buckets
        self.farthest = farthest
        self.weight = nn.Parameter(torch.zeros(buckets, heads))

    def forward(self, n: int, device: torch.device) -> Tensor:
        """(1, heads, n, n)"""
        place = torch.arange(n, device=device)
        distance = place[:, None] - place[None, :]  # of the key before the query
        half = self.buckets // 2
        exact = half // 2
        size = distance.abs()
        grown = (size.clamp(min=1).float() / exact).log() / math.log(self.farthest / exact)
        far = (exact + (grown * (half - exact)).long()).clamp(max=half - 1)
        bucket = torch.where(size < exact, size, far) + (distance < 0).long() * half
        return self.weight[bucket].permute(2, 0, 1)[None]


class RelativeAttention(Attention):
    """Softmax attention with a bias by distance."""

    def __init__(self, heads: int, head_dim: int, *, buckets: int) -> None:
        super().__init__(heads, head_dim)
        self.bias = RelativeBias(heads, buckets)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        """Every token sees every token, some distances better than others."""
        scores = q @ k.transpose(-1, -2) * self.head_dim**-0.5  # (batch, heads, n, n)
        scores = scores + self.bias(q.shape[2], q.device).to(q.dtype)
        return masked_softmax(scores, mask[:, None, None, :]) @ v


class BigBirdAttention(Attention):
    """Blocks that see their neighbours and the document's first and last block, which see all.

    `transformers` puts every random block on the first one outside of training: it counts
    1 + `random` times. Documents of at most (5 + 2 `random`) blocks see everything.
    """

    def __init__(self, heads: int, head_dim: int, *, block: int, random: int) -> None:
        super().__init__(heads, head_dim)
        self.block = block
        self.dense = (5 + 2 * random) * block
        self.first_bonus = math.log(1 + random)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        """Both ways, and each document's own by its length."""
        n = q.shape[2]
        head_q, head_k, head_v = (x[:, :, : self.dense] for x in (q, k, v))
        dense = fused_softmax_attention(head_q, head_k, head_v, mask[:, : self.dense])
        short = (mask.sum(dim=1) <= self.dense)[:, None, None, None]
        return torch.where(short, pad_rows(dense, n)[:, :, :n], self._sparse(q, k, v, mask))

    def _sparse(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        batch, heads, n, d = q.shape
        size = self.block
        blocks = (n + size - 1) // size
        lengths = mask.sum(dim=1)
        last = (lengths.clamp(min=1) - 1) // size  # (batch,)
        rows = (last * size)[:, None] + torch.arange(size, device=q.device)  # (batch, size)
        real_rows = rows < lengths[:, None]
        inside = rows.clamp(max=n - 1)[:, None]  # (batch, 1, size)
        ends_k, ends_v, ends_q = (
            torch.cat(
                [pad_rows(x, size)[:, :, :size], gather_rows(x, inside)],
                dim=2,
            )
            for x in (k, v, q)
        )  # (batch, heads, 2 size, d)
        first_real = torch.arange(size, device=q.device) < lengths[:, None]
        ends_real = torch.cat([first_real, real_rows], dim=1)[:, None, None, None, :]
        bonus = torch.cat([q.new_full((size,), self.first_bonus), q.new_zeros(size)])
        q = q * self.head_dim**-0.5
        queries = pad_rows(q, blocks * size - n).view(batch, heads, blocks, size, d)
        end_scores = queries @ ends_k[:, :, None].transpose(-1, -2) + bonus
        near_scores = queries @ with_neighbours(k, size, blocks).transpose(-1, -2)
        keep = self._visible(mask, last, blocks)  # (batch, 1, blocks, 1, 3 size)
        weights = masked_softmax(
            torch.cat([end_scores, near_scores], dim=-1),
            torch.cat([ends_real.expand(-1, -1, blocks, -1, -1), keep], dim=-1),
        )
        out = weights[..., : 2 * size] @ ends_v[:, :, None]
        out = out + weights[..., 2 * size :] @ with_neighbours(v, size, blocks)
        seen = _attend_from(ends_q, k, v, mask)  # (batch, heads, 2 size, d)
        block = torch.arange(blocks, device=q.device)[None, :]
        is_last = (block == last[:, None])[:, None, :, None, None]
        out = torch.where(is_last, seen[:, :, None, size:], out)
        is_first = (block == 0)[:, None, :, None, None]
        out = torch.where(is_first, seen[:, :, None, :size], out)
        return out.view(batch, heads, blocks * size, d)[:, :, :n]

    def _visible(self, mask: Tensor, last: Tensor, blocks: int) -> Tensor:
        """The real neighbours in blocks that are neither the first nor the document's last."""
        block = torch.arange(mask.shape[1], device=mask.device)[None, :] // self.block
        local = mask & (block > 0) & (block != last[:, None])
        return with_neighbours(local[:, None, :, None], self.block, blocks)[..., 0][:, :, :, None]


def _attend_from(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """Softmax attention of a few queries to all keys."""
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    return masked_softmax(scores, mask[:, None, None, :]) @ v
