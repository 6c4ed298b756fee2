"""The contract that all mechanisms keep, and the checks that guard it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from models.errors import ShapeError

_FLOATS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def blank_padding(x: Tensor, mask: Tensor) -> Tensor:
    """Zero in the padding, whatever stands there: (batch, heads, n, d).

    In an exported graph only the network's own, finite states can stand there, so a product
    will do, which ONNX Runtime computes several times faster than a selection.
    """
    real = mask[:, None, :, None]  # (batch, 1, n, 1)
    return x * real.to(x.dtype) if torch.compiler.is_exporting() else x.masked_fill(~real, 0)


class Attention(nn.Module, ABC):
    """`(q, k, v, mask) -> out`, in which a document's output depends on that document alone.

    q, k, v, out: (batch, heads, n, d); mask: (batch, n), true for real tokens, padding on the
    right. Whatever stands in the padding is ignored, and the output there is zero.

    A mechanism implements `attend`, which sees zeros in the padding.
    """

    #: Whether `attend` is safe from overflow in 16 bits; if not, it runs in float32.
    half_safe: ClassVar[bool] = False
    #: Whether `forward` also takes queries, keys and values of the global tokens' own projections.
    projects_globals: bool = False
    #: Longest document in tokens, where the mechanism has one.
    max_length: int | None = None

    def __init__(self, heads: int, head_dim: int) -> None:
        super().__init__()
        self.heads = heads
        self.head_dim = head_dim

    @classmethod
    def stack(cls, layers: int, heads: int, head_dim: int, **params: Any) -> list[Self]:
        """Build every layer's attention; override where layers differ or share."""
        return [cls(heads, head_dim, **params) for _ in range(layers)]

    @abstractmethod
    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        """Compute the mechanism's formula; q, k and v are zero in the padding."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        """Check the inputs, blank the padding, attend."""
        self._check(q, k, v, mask)
        q, k, v = (blank_padding(x, mask) for x in (q, k, v))
        given = q.dtype
        if given in (torch.float16, torch.bfloat16) and not self.half_safe:
            out = self.attend(q.float(), k.float(), v.float(), mask)
            largest = torch.finfo(given).max
            out = out.clamp(-largest, largest).to(given)
        else:
            out = self.attend(q, k, v, mask)
        return blank_padding(out, mask)  # (batch, heads, n, d)

    def _check(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> None:
        if torch.compiler.is_compiling():
            return  # shapes are symbols then; whoever runs the graph checks its inputs
        for name, x in (("q", q), ("k", k), ("v", v)):
            if x.dim() != 4 or x.shape[1] != self.heads or x.shape[3] != self.head_dim:
                raise ShapeError(
                    f"{name} must be (batch, heads={self.heads}, n, d={self.head_dim}); "
                    f"got {tuple(x.shape)}"
                )
            if x.shape != q.shape:
                raise ShapeError(
                    f"q, k and v must have one shape; got q {tuple(q.shape)}, k {tuple(k.shape)}, "
                    f"v {tuple(v.shape)}"
                )
            if x.dtype != q.dtype or x.dtype not in _FLOATS:
                raise ShapeError(
                    f"q, k and v must have one floating-point type; got q {q.dtype}, k {k.dtype}, "
                    f"v {v.dtype}"
                )
        batch, _, n, _ = q.shape
        if mask.dtype != torch.bool:
            raise ShapeError(f"mask must be of type torch.bool; got {mask.dtype}")
        if tuple(mask.shape) != (batch, n):
            raise ShapeError(
                f"mask must be (batch={batch}, n={n}), as q is {tuple(q.shape)}; "
                f"got {tuple(mask.shape)}"
            )
        if n == 0:
            raise ShapeError(f"n must be at least 1; got q {tuple(q.shape)}")
        if self.max_length is not None and n > self.max_length:
            raise ShapeError(
                f"{type(self).__name__} takes at most {self.max_length} tokens; got n={n}"
            )
        if mask.device.type == "cpu" and bool((mask[:, 1:] & ~mask[:, :-1]).any()):
            raise ShapeError("mask must be true for a document's tokens and false after them only")
