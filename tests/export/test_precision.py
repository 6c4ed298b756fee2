"""fp16 and int8 graphs: what they store, and how near they stay to fp32."""

from __future__ import annotations

from functools import cache

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from export.agreement import probabilities
from export.exporter import finish_graph
from export.precision import to_int8, trace_fp16
from export.trace import trace
from models.description import TABLES, WEIGHTS
from models.networks import Network, build_network
from models.onnx_network import make_network
from models.weights import load_weights
from service.engines import open_engine
from service.engines.base import Engine
from service.engines.ort import OnnxRuntimeEngine
from tests.support.small_bundle import shared_bundle


@cache
def network(attention: str = "softmax") -> Network:
    bundle = shared_bundle(attention)
    model = build_network(bundle.manifest.config).eval()
    load_weights(model, bundle.file(WEIGHTS), bundle.file(TABLES))
    return model


def opened(model: onnx.ModelProto, attention: str = "softmax") -> Engine:
    tensors = shared_bundle(attention).tensors()
    content = finish_graph(model, tensors)
    return OnnxRuntimeEngine(
        make_network(content, tensors, network(attention).config, "a graph"),
        device="cpu",
        precision="fp32",
        threads=1,
        reason="a test",
    )


def largest_difference(engine: Engine, attention: str = "softmax") -> float:
    """From the fp32 graph, over a few documents; the types must be those of fp32."""
    exact = open_engine(shared_bundle(attention))
    random = np.random.default_rng(0)
    largest = 0.0
    for n in (1, 7, 64, 301):
        ids = random.integers(0, network().config.vocab_size, (2, n))
        lengths = np.array([n, (n + 1) // 2])
        found = engine.run(ids, lengths, contributions=True)
        wanted = exact.run(ids, lengths, contributions=True)
        assert found.contributions is not None
        assert found.logits.dtype == np.dtype(np.float32)
        assert found.contributions.dtype == np.dtype(np.float32)
        difference = np.abs(probabilities(found.logits) - probabilities(wanted.logits)).max()
        largest = max(largest, float(difference))
    return largest


@pytest.mark.slow
def test_fp16_computes_blocks_in_16_bits_and_stays_near() -> None:
    traced = trace_fp16(network())
    halves = {w.name for w in traced.graph.initializer if w.data_type == TensorProto.FLOAT16}
    assert {"blocks.0.qkv.weight", "blocks.0.contract.bias"} <= halves
    assert not {"embedding.weight", "positions.gain", "head.weight"} & halves
    assert 0 < largest_difference(opened(traced)) < 1e-2


@pytest.mark.slow
@pytest.mark.parametrize("attention", ["softmax", "infinite_former"])  # the latter: vectors too
def test_int8_stores_the_weights_of_products_in_8_bits(attention: str) -> None:
    quantised = to_int8(trace(network(attention)))
    bytes_ = {w.name for w in quantised.graph.initializer if w.data_type == TensorProto.INT8}
    layers = ("qkv", "out", "expand", "contract")
    assert len([name for name in bytes_ if "quantized" in name]) >= len(layers)
    assert 0 < largest_difference(opened(quantised, attention), attention) < 0.25
