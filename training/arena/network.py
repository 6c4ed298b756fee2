"""The arena's networks: the papers' small one, trained without a bag."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from models.attention import Attention
from models.attention.infinite_former import InfiniteFormerAttention
from models.classifier import Classifier
from models.config import ModelConfig
from training.arena.settings import NO_ATTENTION, NO_MEMORY


class Nothing(Attention):
    """In the place of an attention: tokens learn nothing of each other through it."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        """Zeros, whatever stands there."""
        return torch.zeros_like(v)


def build(
    attention: str,
    params: dict[str, Any],
    *,
    vocab_size: int,
    num_labels: int,
    readout: str,
    seed: int,
) -> Classifier:
    """2 layers, width 64, 2 heads; a control's name gives the network without that part."""
    torch.manual_seed(seed)
    mechanism = {NO_ATTENTION: "softmax", NO_MEMORY: "infinite_former"}.get(attention, attention)
    config = ModelConfig.from_preset(
        "lra",
        vocab_size=vocab_size,
        num_labels=num_labels,
        attention=mechanism,
        attention_params=params,
        dropout=0.0,
        convolution=3,
        readout=readout,
        position_gain=0.2,
    )
    model = Classifier(config)
    model.start_blank()
    for block in model.blocks:
        if attention == NO_ATTENTION:
            block.attention = Nothing(config.heads, config.head_dim)
        elif attention == NO_MEMORY and isinstance(block.attention, InfiniteFormerAttention):
            block.attention.remembers = False
    return model
