"""Softmax attention as ONNX Runtime's fused operator, with padding and without an n × n matrix.

On a CPU the operator takes its fused path only when it is given no mask. So the mask travels
inside the vectors: queries gain columns of ones and keys gain columns that are zero for real
tokens and far below zero for padding. A padded key's score is then so low that its weight is
exactly zero, and a real key's score is what it was, to the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from onnx.defs import OpSchema
from onnxscript import opset20
from onnxscript.values import Op, Opset

#: Columns added to a head: a multiple of eight, since kernels for GPUs want head sizes aligned.
COLUMNS = 8
#: What each of a padded key's columns holds; their sum is within reach of float16.
PENALTY = -4096.0

op: Any = opset20  # its annotations are of tensors in general, too wide to check
_FLOATS = ["tensor(float)", "tensor(float16)"]
_multi_head_attention = Op(
    Opset("com.microsoft", 1),
    "MultiHeadAttention",
    OpSchema(
        "MultiHeadAttention",
        "com.microsoft",
        1,
        inputs=[OpSchema.FormalParameter(name, "T") for name in ("query", "key", "value")],
        outputs=[OpSchema.FormalParameter("output", "T")],
        type_constraints=[("T", _FLOATS, "one type for all")],
        attributes=[
            OpSchema.Attribute("num_heads", OpSchema.AttrType.INT),
            OpSchema.Attribute("scale", OpSchema.AttrType.FLOAT),
        ],
    ),
)


def fused_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """Translate PyTorch's `scaled_dot_product_attention` with a mask of keys.

    query, key, value: (batch, heads, n, d); attn_mask: (batch, 1, 1, n), true for real keys.
    """
    plain = dropout_p == 0 and not is_causal and not enable_gqa
    if attn_mask is None or not plain or tuple(attn_mask.shape[1:3]) != (1, 1):
        raise NotImplementedError("only attention with a mask of keys (batch, 1, 1, n) exports")
    _, heads, _, head_dim = query.shape
    penalty = op.Where(attn_mask, _like(key, 0.0), _like(key, PENALTY))  # (batch, 1, 1, n)
    columns = op.Concat(op.Shape(key, start=0, end=3), op.Constant(value_ints=[COLUMNS]), axis=0)
    masked_key = op.Concat(
        key, op.Expand(op.Transpose(penalty, perm=[0, 1, 3, 2]), columns), axis=-1
    )
    ones = op.Expand(_like(query, 1.0), columns)
    attended = _multi_head_attention(
        _merge_heads(op.Concat(query, ones, axis=-1), heads * (head_dim + COLUMNS)),
        _merge_heads(masked_key, heads * (head_dim + COLUMNS)),
        _merge_heads(value, heads * head_dim),
        num_heads=heads,
        scale=1 / math.sqrt(head_dim) if scale is None else scale,
    )  # (batch, n, heads * d)
    return op.Transpose(
        op.Reshape(attended, op.Constant(value_ints=[0, 0, heads, head_dim])), perm=[0, 2, 1, 3]
    )


def _like(x: Any, value: float) -> Any:
    return op.CastLike(op.Constant(value_float=value), x)


def _merge_heads(x: Any, width: int) -> Any:
    """(batch, heads, n, d) to (batch, n, heads * d)"""
    return op.Reshape(op.Transpose(x, perm=[0, 2, 1, 3]), op.Constant(value_ints=[0, 0, width]))


#: What the exporter is to use in place of its own translations.
TRANSLATIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.ops.aten.scaled_dot_product_attention.default: fused_attention
}
