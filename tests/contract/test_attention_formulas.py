"""Each mechanism against its formula, restated in NumPy float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from models.attention import Attention, create_attention
from models.mechanisms import ATTENTIONS
from tests.contract import formulas, sparse_formulas
from tests.contract.formulas import Array

Formula = Callable[[Array, Array, Array, int], Array]  # q, k, v, head

HEADS, HEAD_DIM = 2, 8


def linformer_formula(attention: Attention, params: dict[str, Any]) -> Formula:
    weights = {name: w.double().numpy() for name, w in attention.state_dict().items()}
    keys = weights.get("keys.weight")
    values = weights.get("values.weight", keys)
    size = -(-params["max_length"] // params["k"])

    def of_head(matrix: Array | None, head: int) -> Array:
        assert matrix is not None
        return np.asarray(matrix[head % len(matrix)])

    def formula(q: Array, k: Array, v: Array, head: int) -> Array:
        kind = params["projection"]
        if kind == "linear":
            E, F = of_head(keys, head), of_head(values, head)
            return formulas.linformer_matrix(q, k, v, E, F)
        kernels = {}
        if kind == "convolution":
            kernels = {"keys": of_head(keys, head)[0], "values": of_head(values, head)[0]}
        return formulas.linformer_windows(q, k, v, size, kind, **kernels)

    return formula


SPARSE = ("longformer", "bigbird", "sparse", "blockwise", "reformer", "informer")


def sparse_formula(name: str, attention: Attention, p: dict[str, Any]) -> Formula:
    state = attention.state_dict()
    found: dict[str, Formula] = {
        "longformer": lambda q, k, v, _: sparse_formulas.longformer(
            q, k, v, p["window"], p["global_tokens"]
        ),
        "bigbird": lambda q, k, v, head: sparse_formulas.bigbird(
            q, k, v, p["block"], state["draws"][head].numpy()
        ),
        "sparse": lambda q, k, v, _: sparse_formulas.sparse(
            q, k, v, p["pattern"], p["stride"], p["summary"]
        ),
        "blockwise": lambda q, k, v, head: sparse_formulas.blockwise(q, k, v, p["blocks"], head),
        "reformer": lambda q, k, v, _: sparse_formulas.reformer(
            q, k, v, state["rotations"].double().numpy(), p["chunk"]
        ),
        "informer": lambda q, k, v, _: sparse_formulas.informer(q, k, v, p["queries"], p["keys"]),
    }
    return found[name]


def formula_of(name: str, attention: Attention, params: dict[str, Any]) -> Formula:
    p = params
    if name == "linformer":
        return linformer_formula(attention, params)
    if name == "nystromformer":
        state = attention.state_dict()
        kernel = state["convolution.weight"] if state else torch.zeros(HEADS, 1)
        return lambda q, k, v, head: formulas.nystromformer(
            q, k, v, p["landmarks"], p["iterations"], kernel[head].double().numpy()
        )
    if name == "performer":
        W = attention.state_dict()["projection"].double().numpy()
        return lambda q, k, v, _: formulas.performer(q, k, v, W, p["feature_map"])
    if name == "skyformer":
        return lambda q, k, v, _: formulas.skyformer(
            q, k, v, p["landmarks"], p["gamma"], p["iterations"]
        )
    if name in SPARSE:
        return sparse_formula(name, attention, params)
    plain = {
        "softmax": formulas.softmax,
        "kernelized": formulas.kernelized,
        "linear": formulas.linear,
        "efficient": formulas.efficient,
    }
    return lambda q, k, v, _: plain[name](q, k, v)


CASES: list[tuple[str, dict[str, Any]]] = [
    ("softmax", {}),
    ("softmax", {"fused": False}),
    *(
        ("linformer", {"k": 7, "max_length": 200, "sharing": sharing, "projection": projection})
        for sharing in ("none", "headwise", "key-value", "layerwise")
        for projection in ("linear", "mean", "max", "convolution")
    ),
    ("nystromformer", {"landmarks": 16, "conv_kernel": 1}),
    ("nystromformer", {"landmarks": 16, "conv_kernel": 9, "iterations": 4}),
    ("nystromformer", {"landmarks": 5, "conv_kernel": 33}),
    *(
        ("performer", {"features": 20, "feature_map": kind})
        for kind in ("positive", "hyperbolic", "trigonometric", "relu")
    ),
    ("kernelized", {}),
    ("skyformer", {"landmarks": 16}),
    ("skyformer", {"landmarks": 9, "gamma": 0.01}),
    ("linear", {}),
    ("longformer", {"window": 4, "global_tokens": 0}),
    ("longformer", {"window": 16, "global_tokens": 3}),
    ("efficient", {}),
    ("bigbird", {"block": 8}),
    ("bigbird", {"block": 5, "random": 2, "seed": 3}),
    ("bigbird", {"block": 1, "random": 7}),
    ("sparse", {"stride": 8}),
    ("sparse", {"stride": 11}),
    ("sparse", {"stride": 8, "pattern": "fixed", "summary": 3}),
    ("sparse", {"stride": 1}),
    ("blockwise", {}),
    ("blockwise", {"blocks": 5}),
    ("blockwise", {"blocks": 1}),
    ("reformer", {"rounds": 1, "buckets": 4, "chunk": 8}),
    ("reformer", {"rounds": 4, "buckets": 8, "chunk": 5}),
    ("reformer", {"rounds": 3, "buckets": 2, "chunk": 64}),
    ("informer", {}),
    ("informer", {"queries": 2, "keys": 3}),
]

LENGTHS = (1, 2, 5, 16, 17, 64, 129)


def documents(n: int) -> tuple[Array, Array, Array]:
    q, k, v = np.random.default_rng(n).standard_normal((3, HEADS, n, HEAD_DIM))
    return q, k, v


def run(attention: Attention, q: Array, k: Array, v: Array) -> Array:
    n = q.shape[1]
    tensors = (torch.from_numpy(x)[None] for x in (q, k, v))
    with torch.no_grad():
        out = attention.double()(*tensors, torch.ones(1, n, dtype=torch.bool))
    return np.asarray(out[0].numpy())


def assert_close(got: Array, wanted: Array, tolerance: float) -> None:
    assert np.abs(got - wanted).max() <= tolerance * np.abs(wanted).max()


def case_id(case: tuple[str, dict[str, Any]]) -> str:
    return "-".join([case[0], *(str(v) for v in case[1].values())])


def test_every_mechanism_is_held_against_its_formula() -> None:
    assert {name for name, _ in CASES} | {"infinite_former"} == set(ATTENTIONS.names())


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_it_computes_its_formula(case: tuple[str, dict[str, Any]], n: int) -> None:
    name, params = case
    attention = create_attention(name, heads=HEADS, head_dim=HEAD_DIM, **params)
    formula = formula_of(name, attention, ATTENTIONS[name].validate(params))
    q, k, v = documents(n)
    wanted = np.stack([formula(q[h], k[h], v[h], h) for h in range(HEADS)])
    # Hyperbolic features get a tiny addend that the formula does not have.
    tolerance = 5e-6 if params.get("feature_map") == "hyperbolic" else 1e-7
    assert_close(run(attention, q, k, v), wanted, tolerance)


@pytest.mark.parametrize("n", LENGTHS)
def test_longformers_global_tokens_may_have_projections_of_their_own(n: int) -> None:
    attention = create_attention(
        "longformer",
        heads=HEADS,
        head_dim=HEAD_DIM,
        window=4,
        global_tokens=3,
        own_projections=True,
    )
    inputs = [*documents(n), *documents(n + 1000)]
    tensors = [torch.from_numpy(x[:, :n])[None] for x in inputs]
    mask = torch.ones(1, n, dtype=torch.bool)
    got = attention(*tensors[:3], mask, *tensors[3:])[0].numpy()
    heads = []
    for head in range(HEADS):
        q, k, v, own_q, own_k, own_v = (x[head, :n] for x in inputs)
        heads.append(sparse_formulas.longformer(q, k, v, 4, 3, (own_q, own_k, own_v)))
    assert_close(got, np.stack(heads), 1e-7)


@pytest.mark.parametrize("n", [1, 7, 8, 9, 25, 120])
@pytest.mark.parametrize("sticky", [False, True])
@pytest.mark.parametrize("segment", [8, 7])
@pytest.mark.parametrize("widths", ["fine", "coarse"])
def test_infinite_former_computes_its_formula(
    n: int, sticky: bool, segment: int, widths: str
) -> None:
    params = ATTENTIONS["infinite_former"].validate(
        {"segment": segment, "basis": 12, "samples": 32, "sticky": sticky, "widths": widths}
    )
    attention = create_attention("infinite_former", heads=HEADS, head_dim=HEAD_DIM, **params)
    state = attention.state_dict()
    formula = formulas.InfiniteFormer(
        state["locate"].double().numpy(), state["spread"].double().numpy(), params
    )
    q, k, v = documents(n)
    # The module keeps its constants in float32.
    assert_close(run(attention, q, k, v), formula(q, k, v), tolerance=2e-5)


def test_a_few_rounds_are_not_the_pseudo_inverse_but_approach_it() -> None:
    matrix = formulas.softmax_rows(np.random.default_rng(0).standard_normal((24, 24)))
    wanted = np.linalg.pinv(matrix)
    errors = [
        np.linalg.norm(formulas.six_rounds(matrix, rounds) - wanted) for rounds in (3, 6, 9, 12)
    ]
    assert errors == sorted(errors, reverse=True)
