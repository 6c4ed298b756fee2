"""Positions beyond the length that a checkpoint was made for."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional


def extended_positions(
    table: Tensor, rows: int, specials: int, how: Literal["repeat", "interpolate"]
) -> Tensor:
    """A position table (n, width) with so many rows; fewer are the first ones.

    `repeat` copies the rows end to end, but for the first, which belongs to the special token
    before every document; `interpolate` stretches them.
    """
    have = table.shape[0]
    if rows <= have:
        return table[:rows].clone()
    first = min(1, specials)
    body, missing = table[first:], rows - first
    if how == "repeat":
        copies = -(-missing // body.shape[0])
        return torch.cat([table[:first], body.repeat(copies, 1)[:missing]])
    stretched = functional.interpolate(
        body.T[None], size=missing, mode="linear", align_corners=True
    )[0].T
    return torch.cat([table[:first], stretched])
