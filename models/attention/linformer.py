"""Linformer: softmax attention over keys and values projected to a fixed number of rows."""

from __future__ import annotations

from typing import Self

from torch import Tensor, nn

from models.attention.base import Attention
from models.attention.masking import masked_softmax
from models.attention.projections import (
    ConvolutionProjection,
    LinearProjection,
    MaxProjection,
    MeanProjection,
)
from models.errors import ConfigError


class LinformerAttention(Attention):
    """sm(q (E k)ᵀ / √d) (F v)"""

    half_safe = True

    def __init__(
        self,
        heads: int,
        head_dim: int,
        max_length: int,
        keys: nn.Module,
        values: nn.Module | None,
        *,
        owns_keys: bool = True,
    ) -> None:
        super().__init__(heads, head_dim)
        self.max_length = max_length
        # What is shared is registered once, where it is owned, so that it is saved once.
        self._projections = (keys, keys if values is None else values)
        if owns_keys:
            self.keys = keys
        if values is not None:
            self.values = values

    @classmethod
    def stack(  # type: ignore[override] # the parameters are those of the declaration
        cls,
        layers: int,
        heads: int,
        head_dim: int,
        *,
        k: int | tuple[int, ...],
        max_length: int,
        sharing: str,
        projection: str,
    ) -> list[Self]:
        """Build every layer with its own k, sharing projections as asked."""
        ks = (k,) * layers if isinstance(k, int) else k
        if len(ks) != layers:
            raise ConfigError(f"linformer: k has {len(ks)} entries for {layers} layers")
        if max(ks) > max_length:
            raise ConfigError(
                f"linformer: k must be at most max_length ({max_length}); got {max(ks)}"
            )
        if sharing == "layerwise" and len(set(ks)) > 1:
            raise ConfigError("linformer: layers that share one projection need one k")

        def project(rows: int) -> nn.Module:
            kernel_heads = heads if sharing == "none" else 1
            return make_projection(projection, rows, max_length, kernel_heads, head_dim)

        if sharing == "layerwise":
            shared = project(ks[0])
            return [
                cls(heads, head_dim, max_length, shared, None, owns_keys=layer == 0)
                for layer in range(layers)
            ]
        return [
            cls(
                heads,
                head_dim,
                max_length,
                project(rows),
                None if sharing == "key-value" else project(rows),
            )
            for rows in ks
        ]

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        """Shorten keys and values, then softmax attention over what is left."""
        project_keys, project_values = self._projections
        short_k, keep = project_keys(k, mask)  # (batch, heads, k, d), (batch, k)
        short_v, _ = project_values(v, mask)
        scores = (q * self.head_dim**-0.5) @ short_k.transpose(-1, -2)  # (batch, heads, n, k)
        out: Tensor = masked_softmax(scores, keep[:, None, None, :]) @ short_v
        return out


def make_projection(
    kind: str, k: int, max_length: int, kernel_heads: int, head_dim: int
) -> nn.Module:
    """The projection of that kind from at most max_length rows to k."""
    size = -(-max_length // k)
    if kind == "linear":
        return LinearProjection(kernel_heads, k, max_length)
    if kind == "mean":
        return MeanProjection(k, size)
    if kind == "max":
        return MaxProjection(k, size)
    return ConvolutionProjection(kernel_heads, k, size, head_dim)
