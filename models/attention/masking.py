"""Softmax over the entries that exist, and cutting a document by its own length."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def masked_softmax(scores: Tensor, keep: Tensor) -> Tensor:
    """Softmax over the last axis where `keep` is true; a row without any stays finite."""
    return scores.masked_fill(~keep, torch.finfo(scores.dtype).min).softmax(dim=-1)


def pad_rows(x: Tensor, rows: int) -> Tensor:
    """Append rows of zeros to the last axis but one: (…, n, d) to (…, n + rows, d)."""
    return functional.pad(x, (0, 0, 0, rows))


def shorter(size: int, n: int) -> int:
    """The smaller of the two, also where n is a symbol of a graph being exported."""
    smallest: int = torch.sym_min(size, n)  # type: ignore[no-untyped-call]
    return smallest


def segment_bounds(lengths: Tensor, segments: int) -> tuple[Tensor, Tensor]:
    """Where each document's segments begin and end, so that p lies in floor(p * m / len).

    lengths (batch,) to two tensors (batch, m); a document shorter than m has empty segments.
    """
    edges = torch.arange(segments + 1, device=lengths.device)  # (m + 1,)
    cuts = (edges * lengths[:, None] + segments - 1) // segments  # (batch, m + 1)
    return cuts[:, :-1], cuts[:, 1:]


def gather_rows(x: Tensor, positions: Tensor) -> Tensor:
    """Rows of each head: x (batch, heads, n, d), positions (batch, heads or 1, r) to (…, r, d)."""
    batch, heads, n, d = x.shape
    owner = torch.arange(batch * heads, device=x.device).view(batch, heads, 1)
    flat = (owner * n + positions).reshape(-1)  # (batch * heads * r,)
    rows = x.reshape(batch * heads * n, d).index_select(0, flat)
    return rows.view(batch, heads, positions.shape[2], d)


def segment_means(x: Tensor, lengths: Tensor, segments: int) -> Tensor:
    """Mean of each document's segments, zero for empty ones: (batch, heads, m, d)."""
    batch, heads, n, d = x.shape
    begin, end = segment_bounds(lengths, segments)  # (batch, m)
    longest = (n + segments - 1) // segments
    steps = torch.arange(longest, device=x.device)
    positions = begin[:, :, None] + steps  # (batch, m, longest)
    inside = positions < end[:, :, None]
    rows = gather_rows(x, positions.clamp(max=n - 1).view(batch, 1, segments * longest))
    rows = rows.view(batch, heads, segments, longest, d)
    total = (rows * inside[:, None, :, :, None]).sum(dim=3)  # (batch, heads, m, d)
    return total / (end - begin).clamp(min=1)[:, None, :, None].to(x.dtype)


def with_neighbours(x: Tensor, size: int, blocks: int) -> Tensor:
    """Each block between the one before and the one after it, zeros beyond the ends."""
    batch, heads, n, d = x.shape
    padded = functional.pad(x, (0, 0, size, (blocks + 1) * size - n))
    cut = padded.view(batch, heads, blocks + 2, size, d)
    return torch.cat([cut[:, :, :-2], cut[:, :, 1:-1], cut[:, :, 2:]], dim=3)
