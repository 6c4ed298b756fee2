"""Reformer: softmax attention among tokens that a hash puts together."""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Tensor
from torch.nn import functional

from models.attention.base import Attention
from models.attention.masking import gather_rows
from models.errors import ConfigError

#: Taken from the score of a token with itself, which counts only where it sees no other.
OWN = 1e5


class ReformerAttention(Attention):
    """Σ_r w_r sm over tokens of the same bucket in round r, in a chunk and the one before it

    Queries and keys are one vector, x = (q + k) / 2, with keys x / ‖x‖. In every round tokens are
    sorted by bucket, argmax of [x R, −x R], then by position, and cut into chunks. A token seen in
    several rounds counts once: log of their number is taken from its score.
    """

    def __init__(
        self, heads: int, head_dim: int, *, rounds: int, buckets: int, chunk: int, seed: int
    ) -> None:
        super().__init__(heads, head_dim)
        if buckets % 2:
            raise ConfigError(f"reformer: buckets must be even; got {buckets}")
        self.rounds = rounds
        self.buckets = buckets
        self.chunk = chunk
        generator = torch.Generator().manual_seed(seed)
        rotations = torch.randn(rounds, head_dim, buckets // 2, generator=generator)
        self.register_buffer("rotations", rotations)
        self.rotations: Tensor

    @classmethod
    def stack(cls, layers: int, heads: int, head_dim: int, **params: Any) -> list[Self]:
        """Draw other rotations for every layer."""
        seed = params.pop("seed")
        return [cls(heads, head_dim, seed=seed + layer, **params) for layer in range(layers)]

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        """Sort and attend in all rounds at once, then weigh the rounds by what they saw."""
        batch, heads, n, d = q.shape
        rounds = self.rounds
        x = (q + k) / 2
        buckets = self._hash(x, mask)  # (batch, heads, rounds, n)
        position = torch.arange(n, device=q.device)
        order = (buckets * n + position).argsort(dim=-1)
        place = torch.zeros_like(order).scatter(3, order, position.expand_as(order))
        # Two tokens meet in a round when their meetings differ by 0, or by 1 for the later chunk.
        meetings = (buckets * (n + 2) + place // self.chunk).int()

        def in_order(rows: Tensor) -> Tensor:
            """(batch, heads, n, …) to (batch, heads * rounds, n, …), sorted for each round."""
            every = rows[:, :, None].expand(-1, -1, rounds, -1, -1).flatten(1, 2)
            return gather_rows(every, order.flatten(1, 2))

        out, total = self._attend_in_chunks(
            in_order(x),
            in_order(v),
            in_order(meetings.transpose(2, 3)),
            order.flatten(1, 2),
        )
        out = gather_rows(torch.cat([out, total], dim=-1), place.flatten(1, 2))
        out = out.view(batch, heads, rounds, n, d + 1)
        weights = out[..., d:].softmax(dim=2)
        return (weights * out[..., :d]).sum(dim=2)

    def _hash(self, x: Tensor, mask: Tensor) -> Tensor:
        """The bucket of each token in each round, one more than there are for padding."""
        turned = x[:, :, None] @ self.rotations.to(x.dtype)  # (batch, heads, rounds, n, buckets/2)
        bucket = torch.cat([turned, -turned], dim=-1).argmax(dim=-1)
        return torch.where(mask[:, None, None], bucket, self.buckets)

    def _attend_in_chunks(
        self, x: Tensor, v: Tensor, meetings: Tensor, order: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Sorted tokens attend: outputs (…, n, d) and logs of what each summed (…, n, 1).

        x, v: (batch, heads * rounds, n, d); meetings: (…, n, rounds); order: (…, n).
        """
        n, d = x.shape[2:]
        queries, _ = self._chunks(x)
        _, keys = self._chunks(functional.normalize(x, dim=-1) * d**-0.5)
        _, values = self._chunks(v)
        own, other = self._chunks(order[..., None], fill=-1)
        is_self = own == other.transpose(-1, -2)  # (…, chunks, chunk, 2 chunk)
        own, other = self._chunks(meetings, fill=-10)
        times = torch.zeros_like(is_self, dtype=x.dtype)
        this = torch.arange(x.shape[1], device=x.device)[:, None, None, None] % self.rounds
        keep = torch.zeros_like(is_self)
        for number in range(self.rounds):
            later = own[..., number, None] - other[..., None, :, number]
            meet = (later == 0) | (later == 1)
            times = times + meet
            keep = keep | (meet & (this == number))
        scores = queries @ keys.transpose(-1, -2) - times.clamp(min=1).log() - OWN * is_self
        scores = scores.masked_fill(~keep, torch.finfo(x.dtype).min)
        total = scores.logsumexp(dim=-1, keepdim=True)  # (…, chunks, chunk, 1)
        out = (scores - total).exp() @ values
        return out.flatten(2, 3)[:, :, :n], total.flatten(2, 3)[:, :, :n]

    def _chunks(self, rows: Tensor, fill: float = 0.0) -> tuple[Tensor, Tensor]:
        """Chunks (…, chunks, chunk, r) of rows (…, n, r), and each behind the one before it."""
        batch, heads, n, width = rows.shape
        count = (n + self.chunk - 1) // self.chunk
        padded = functional.pad(rows, (0, 0, self.chunk, count * self.chunk - n), value=fill)
        cut = padded.view(batch, heads, count + 1, self.chunk, width)
        return cut[:, :, 1:], torch.cat([cut[:, :, :-1], cut[:, :, 1:]], dim=3)
