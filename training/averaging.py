"""A running average of weights, which does better than the last ones."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


class Average:
    """Follows tensors by `value ← decay · value + (1 − decay) · tensor`, faster at the start."""

    def __init__(self, tensors: Mapping[str, Tensor], decay: float) -> None:
        self._tensors = dict(tensors)
        self.values = {name: tensor.detach().clone() for name, tensor in tensors.items()}
        self.decay = decay
        self.steps = 0

    @torch.no_grad()
    def update(self) -> None:
        """Move towards the tensors as they are now."""
        self.steps += 1
        decay = min(self.decay, (1 + self.steps) / (10 + self.steps))
        for name, tensor in self._tensors.items():
            self.values[name].lerp_(tensor.detach(), 1 - decay)
