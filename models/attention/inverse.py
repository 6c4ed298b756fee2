"""The matrix inverse by iteration that Nyströmformer and Skyformer share."""

from __future__ import annotations

import torch
from torch import Tensor


def iterative_inverse(matrix: Tensor, iterations: int) -> Tensor:
    """Approximate the pseudo-inverse of each (m, m) matrix by a fixed number of rounds.

    A few rounds approach the pseudo-inverse without reaching it, and very many diverge in
    float32. Rows and columns that are zero on both sides stay out of it: the result is that
    of the smaller matrix, with zeros around it.
    """
    magnitude = matrix.abs()
    norm_1 = magnitude.sum(dim=-2).amax(dim=-1)[..., None, None]  # largest column sum
    norm_inf = magnitude.sum(dim=-1).amax(dim=-1)[..., None, None]  # largest row sum
    smallest = torch.finfo(matrix.dtype).tiny
    Z = matrix.transpose(-1, -2) / (norm_1 * norm_inf).clamp(min=smallest)
    for _ in range(iterations):  # Z (13I − AZ (15I − AZ (7I − AZ))) / 4, without the identities
        AZ = matrix @ Z
        inner = 7 * AZ - AZ @ AZ
        inner = 15 * AZ - AZ @ inner
        Z = 0.25 * (13 * Z - Z @ inner)
    return Z
