"""A depthwise convolution along the document, as matrix products."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class DepthwiseConvolution(nn.Module):
    """Convolve (batch, heads, n, d) along n with one odd kernel per head, zeros outside.

    The document is cut into blocks; a block with its margins times a banded matrix is the
    convolution of that block. Inference engines run this several times faster than their
    grouped convolution, and without its large scratch memory.
    """

    def __init__(self, heads: int, kernel: int) -> None:
        super().__init__()
        self.margin = kernel // 2
        self.block = max(64, 2 * self.margin)
        self.weight = nn.Parameter(torch.empty(heads, kernel))
        nn.init.uniform_(self.weight, -(kernel**-0.5), kernel**-0.5)
        row = torch.arange(self.block)[:, None]
        column = torch.arange(self.block + 2 * self.margin)[None, :]
        tap = column - row  # which weight joins an output row to an input row
        self.register_buffer("tap", tap.clamp(0, kernel - 1), persistent=False)
        self.register_buffer("in_band", (tap >= 0) & (tap < kernel), persistent=False)
        self.tap: Tensor
        self.in_band: Tensor

    def forward(self, v: Tensor) -> Tensor:
        """Convolve; v is zero in the padding."""
        batch, heads, n, d = v.shape
        size, margin = self.block, self.margin
        blocks = (n + size - 1) // size
        # Shifted by the margin, block i with the head of block i + 1 is all that block i needs.
        padded = functional.pad(v, (0, 0, margin, (blocks + 1) * size - n - margin))
        cut = padded.view(batch, heads, blocks + 1, size, d)
        windows = torch.cat([cut[:, :, :-1], cut[:, :, 1:, : 2 * margin]], dim=3)
        band = self.weight.to(v.dtype)[:, self.tap] * self.in_band  # (heads, size, size + 2 margin)
        out = band[None, :, None] @ windows  # (batch, heads, blocks, size, d)
        return out.view(batch, heads, blocks * size, d)[:, :, :n]
