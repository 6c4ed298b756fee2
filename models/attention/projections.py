"""Linformer's ways to shorten keys and values from n rows to k."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from models.attention.masking import pad_rows


class LinearProjection(nn.Module):
    """A learned k × max_length matrix per kernel head, cut to the document's columns."""

    def __init__(self, kernel_heads: int, k: int, max_length: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(kernel_heads, k, max_length))
        nn.init.normal_(self.weight, std=max_length**-0.5)

    def forward(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """(batch, heads, n, d) to (batch, heads, k, d), and which rows hold something."""
        weight = self.weight[:, :, : x.shape[2]]
        keep = torch.ones_like(mask[:, :1]).expand(-1, weight.shape[1])
        return weight @ x, keep


class WindowProjection(nn.Module):
    """One row per window of `size` tokens, k in all; those that hold no token are dropped."""

    def __init__(self, k: int, size: int) -> None:
        super().__init__()
        self.k = k
        self.size = size

    def forward(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """(batch, heads, n, d) to (batch, heads, k, d), and which rows hold something."""
        batch, heads, n, d = x.shape
        windows = (n + self.size - 1) // self.size
        missing = windows * self.size - n
        cut = pad_rows(x, missing).view(batch, heads, windows, self.size, d)
        real = pad_rows(mask[:, :, None].to(x.dtype), missing)  # (batch, windows * size, 1)
        real = real.view(batch, 1, windows, self.size, 1)
        rows = pad_rows(self.reduce(cut, real), self.k - windows)
        keep = pad_rows(real[:, 0, :, 0], self.k - windows)  # a window's first token tells
        return rows, keep[:, :, 0] > 0

    def reduce(self, cut: Tensor, real: Tensor) -> Tensor:
        """(batch, heads, windows, size, d) to (batch, heads, windows, d)."""
        raise TypeError("use MeanProjection, MaxProjection or ConvolutionProjection")


class MeanProjection(WindowProjection):
    """The mean of a window's tokens."""

    def reduce(self, cut: Tensor, real: Tensor) -> Tensor:
        """Average over the real tokens."""
        return cut.sum(dim=3) / real.sum(dim=3).clamp(min=1)


class MaxProjection(WindowProjection):
    """The largest value of a window's tokens, per dimension."""

    def reduce(self, cut: Tensor, real: Tensor) -> Tensor:
        """Maximise over the real tokens; an empty window gives zero."""
        lowest = torch.finfo(cut.dtype).min
        top = cut.masked_fill(real == 0, lowest).amax(dim=3)
        return top.masked_fill(real[:, :, :, 0] == 0, 0)


class ConvolutionProjection(WindowProjection):
    """A depthwise convolution whose kernel and stride are the window."""

    def __init__(self, kernel_heads: int, k: int, size: int, head_dim: int) -> None:
        super().__init__(k, size)
        self.weight = nn.Parameter(torch.empty(kernel_heads, 1, size, head_dim))
        nn.init.normal_(self.weight, mean=1 / size, std=0.5 / size)

    def reduce(self, cut: Tensor, real: Tensor) -> Tensor:
        """Weigh and add; the padding is zero and adds nothing."""
        return (cut * self.weight).sum(dim=3)
