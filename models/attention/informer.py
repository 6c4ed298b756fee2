"""Informer: softmax attention for the queries that stand out, the mean for all others."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from models.attention.base import Attention
from models.attention.masking import gather_rows, masked_softmax

#: Largest ⌈ln len⌉: documents beyond 1.2 million tokens get no more queries and samples.
LARGEST_LOGARITHM = 14
#: len > e^j holds for as many j as ⌈ln len⌉ says; whole numbers compare alike on every engine.
_POWERS = tuple(math.floor(math.exp(j)) for j in range(LARGEST_LOGARITHM))


class InformerAttention(Attention):
    """sm(q kᵀ / √d) v for the u queries with the largest M, the mean of v for the rest (ProbSparse)

    M(q) is the largest less the mean of q·k / √d over a sample of keys. u = queries · ⌈ln len⌉,
    and keys · ⌈ln len⌉ keys are sampled, at even strides of the document.
    """

    def __init__(self, heads: int, head_dim: int, *, queries: int, keys: int) -> None:
        super().__init__(heads, head_dim)
        self.queries = queries
        self.keys = keys
        self.register_buffer("powers", torch.tensor(_POWERS), persistent=False)
        self.powers: Tensor

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        """Rank the queries, attend with the first, give the others the mean."""
        n = q.shape[2]
        q = q * self.head_dim**-0.5
        lengths = mask.sum(dim=1)[:, None]  # (batch, 1)
        logarithm = (lengths > self.powers).sum(dim=1, keepdim=True)  # (batch, 1)
        measured = self._measure(q, k, lengths, (self.keys * logarithm).minimum(lengths))
        lowest = torch.finfo(q.dtype).min
        most = self.queries * LARGEST_LOGARITHM
        ranked = functional.pad(
            measured.masked_fill(~mask[:, None], lowest), (0, most), value=lowest
        )
        chosen = ranked.topk(most, dim=2).indices.clamp(max=n - 1)  # (batch, heads, most)
        scores = gather_rows(q, chosen) @ k.transpose(-1, -2)  # (batch, heads, most, n)
        attended = masked_softmax(scores, mask[:, None, None, :]) @ v
        mean = v.sum(dim=2, keepdim=True) / lengths.clamp(min=1)[..., None, None].to(v.dtype)
        out = functional.pad(mean.expand_as(q), (0, 0, 0, 1))  # a row more, for what is not chosen
        rank = torch.arange(most, device=q.device)
        counts = (rank < (self.queries * logarithm).minimum(lengths))[:, None]  # (batch, 1, most)
        rows = torch.where(counts, chosen, n)[..., None].expand_as(attended)
        return out.scatter(2, rows, attended)[:, :, :n]

    def _measure(self, q: Tensor, k: Tensor, lengths: Tensor, samples: Tensor) -> Tensor:
        """M of every query over `samples` (batch, 1) keys: (batch, heads, n)."""
        number = torch.arange(self.keys * LARGEST_LOGARITHM, device=q.device)
        positions = (number * lengths // samples.clamp(min=1)).clamp(max=k.shape[2] - 1)
        scores = q @ gather_rows(k, positions[:, None]).transpose(-1, -2)  # (batch, heads, n, most)
        keep = (number < samples)[:, None, None, :]
        top = scores.masked_fill(~keep, torch.finfo(q.dtype).min).amax(dim=-1)
        total = (scores * keep).sum(dim=-1)
        return top - total / samples.clamp(min=1)[:, :, None].to(q.dtype)
