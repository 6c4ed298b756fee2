"""Attention mechanisms: `(q, k, v, mask) -> out`, created by name."""

from __future__ import annotations

import importlib
from typing import Any

from models.attention.base import Attention
from models.mechanisms import ATTENTIONS

__all__ = ["Attention", "create_attention", "create_layers"]


def create_attention(name: str, *, heads: int, head_dim: int, **params: Any) -> Attention:
    """Build one layer's attention by its registered name, with checked parameters."""
    return create_layers(name, layers=1, heads=heads, head_dim=head_dim, **params)[0]


def create_layers(
    name: str, *, layers: int, heads: int, head_dim: int, **params: Any
) -> list[Attention]:
    """Build the attention of every layer; layers may share what the mechanism shares."""
    spec = ATTENTIONS[name]
    checked = spec.validate(params)
    module_name, _, class_name = spec.implementation.partition(":")
    mechanism: type[Attention] = getattr(importlib.import_module(module_name), class_name)
    return mechanism.stack(layers, heads, head_dim, **checked)
