"""Which operators ONNX Runtime's CUDA provider computes, and in which types.

From the project's list of kernels, docs/OperatorKernels.md, for opset 20; operators that no graph
of ours has are left out. An operator whose result is a shape, or whose inputs are one, belongs on
the CPU in any case: `Shape` and what follows from it never touches the GPU's memory.
"""

from __future__ import annotations

from collections.abc import Mapping

_FLOATS = frozenset({"float", "float16"})
_NUMBERS = _FLOATS | {"int32", "int64"}
_ALL = _NUMBERS | {"bool", "int8", "uint8"}

#: operator: the types of its first output or, where that is a truth value, of its first input.
CUDA_KERNELS: Mapping[str, frozenset[str]] = {
    "Abs": _NUMBERS | {"int8", "uint8"},
    "Add": _NUMBERS,
    "And": frozenset({"bool"}),
    "ArgMax": _FLOATS,
    "Cast": _ALL,
    "Ceil": _FLOATS,
    "Clip": _FLOATS | {"int64", "int8", "uint8"},
    "Concat": _ALL,
    "ConstantOfShape": _ALL,
    "Cos": _FLOATS,
    "CumSum": _NUMBERS,
    "Div": _NUMBERS,
    "Einsum": _FLOATS,
    "Elu": _FLOATS,
    "Equal": _NUMBERS | {"bool"},
    "Erf": _FLOATS,
    "Exp": _FLOATS,
    "Expand": _ALL,
    "Floor": _FLOATS,
    "Gather": _ALL,
    "GatherElements": _ALL,
    "GatherND": _FLOATS | {"int64"},
    "Gemm": _FLOATS,
    "Greater": _NUMBERS,
    "GreaterOrEqual": _NUMBERS,
    "LayerNormalization": _FLOATS,
    "Less": _NUMBERS,
    "LessOrEqual": _NUMBERS,
    "Log": _FLOATS,
    "MatMul": _FLOATS,
    "Max": _NUMBERS,
    "Min": _NUMBERS,
    "Mod": _NUMBERS,
    "Mul": _NUMBERS,
    "MultiHeadAttention": _FLOATS,
    "Neg": _NUMBERS,
    "Not": frozenset({"bool"}),
    "Or": frozenset({"bool"}),
    "Pad": _FLOATS | {"bool"},
    "Pow": _NUMBERS,
    "Range": frozenset({"float", "int32", "int64"}),
    "Reciprocal": _FLOATS,
    "ReduceMax": _NUMBERS,
    "ReduceMean": _FLOATS | {"int32"},
    "ReduceMin": _NUMBERS | {"int8", "uint8"},
    "ReduceSum": _NUMBERS,
    "Relu": _FLOATS,
    "Reshape": _ALL,
    "ScatterElements": _ALL,
    "ScatterND": _ALL,
    "Shape": _ALL,
    "Sigmoid": _FLOATS,
    "Sign": _NUMBERS,
    "Sin": _FLOATS,
    "Slice": _ALL,
    "Softmax": _FLOATS,
    "Softplus": _FLOATS,
    "Split": _ALL,
    "Sqrt": _FLOATS,
    "Squeeze": _ALL,
    "Sub": _NUMBERS,
    "Tanh": _FLOATS,
    "Tile": _NUMBERS,
    "TopK": _NUMBERS,
    "Transpose": _ALL,
    "Trilu": _ALL,
    "Unsqueeze": _ALL,
    "Where": _NUMBERS | {"uint8"},
}
