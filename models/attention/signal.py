"""∞-former's continuous signal: Gaussian basis functions and the regressions onto them.

All of it depends on sizes alone, so it is computed once, in float64, and stored as constants.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

#: Standard deviations of the basis functions by name.
WIDTHS = {"fine": (0.005, 0.01), "coarse": (0.01, 0.05)}
#: What is left of a segment in the memory when it counts as forgotten.
FORGOTTEN = 1e-9


def gaussian_density(t: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """The normal density N(t; mean, variance)."""
    return (-(t - mean).square() / (2 * variance)).exp() / (2 * math.pi * variance).sqrt()


@dataclass(frozen=True)
class Signal:
    """Constants of a memory with N basis functions over segments of L tokens.

    mean, variance   (N,)     of the basis functions
    fit              (N, L)   a first segment to its coefficients
    keep             (N, N)   the old coefficients' part in the new ones at an update
    add              (N, L)   a further segment's part in the new coefficients
    refit            (N, S)   points sampled from the old signal to new coefficients
    """

    mean: Tensor
    variance: Tensor
    fit: Tensor
    keep: Tensor
    add: Tensor
    refit: Tensor

    def basis(self, t: Tensor) -> Tensor:
        """ψ_j(t): (…) to (…, N)."""
        return gaussian_density(t[..., None], self.mean, self.variance)

    def powers(self) -> Tensor:
        """keep^1, keep^2, keep^4, … until nothing is left: (steps, N, N)."""
        powers = [self.keep]
        while torch.linalg.matrix_norm(powers[-1], ord=2) > FORGOTTEN and len(powers) < 24:
            powers.append(powers[-1] @ powers[-1])
        return torch.stack(powers)


def make_signal(
    *, basis: int, widths: tuple[float, float], segment: int, samples: int, tau: float, ridge: float
) -> Signal:
    """Fit the constants for these sizes."""
    centres = torch.linspace(0, 1, basis // 2, dtype=torch.float64)
    mean = centres.repeat_interleave(2)
    variance = torch.tensor(widths, dtype=torch.float64).square().repeat(basis // 2)

    def regression(inside: Tensor, outside: Tensor) -> Tensor:
        """G: values at the inside positions to coefficients, the outside being zero."""
        F = gaussian_density(torch.cat([inside, outside])[:, None], mean, variance)
        gram = F.T @ F + ridge * torch.eye(basis, dtype=torch.float64)
        G: Tensor = torch.linalg.solve(gram, F.T)[:, : len(inside)]  # (N, inside)
        return G

    first_inside, first_outside = _first_positions(segment)
    past = torch.arange(1, samples + 1, dtype=torch.float64) / samples
    new = torch.arange(1, segment + 1, dtype=torch.float64) / segment
    update = regression(
        torch.cat([tau * past, tau + (1 - tau) * new]), _update_margin(segment, samples)
    )
    at_samples = gaussian_density(past[:, None], mean, variance)  # (S, N)
    return Signal(
        mean=mean,
        variance=variance,
        fit=regression(first_inside, first_outside),
        keep=update[:, :samples] @ at_samples,
        add=update[:, samples:],
        refit=update[:, :samples],
    )


def _first_positions(segment: int) -> tuple[Tensor, Tensor]:
    """Positions of a first segment in [0, 1], and as dense ones around it in (−½, 1½)."""
    if segment % 2:
        shift, count, cut = 1 / segment, 2 * segment - 1, (segment - 1) // 2
    else:
        shift, count, cut = 1 / (2 * segment), 2 * segment, segment // 2
    positions = torch.linspace(-0.5 + shift, 1.5 - shift, count, dtype=torch.float64)
    inside = positions[cut : cut + segment]
    return inside, torch.cat([positions[:cut], positions[cut + segment :]])


def _update_margin(segment: int, samples: int) -> Tensor:
    """Positions outside [0, 1] that an update's regression holds at zero."""
    shift = 1 / (2 * segment + samples)
    count = 2 * (segment + samples)
    positions = torch.linspace(-0.5 + shift, 1.5 - shift, count, dtype=torch.float64)
    return positions[(positions < 0) | (positions > 1)]
