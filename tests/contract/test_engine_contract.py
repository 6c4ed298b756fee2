"""What every engine and every bundle must keep: agreement, independence, exact shares."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from export.agreement import probabilities
from models.bundle import Bundle, find_bundles, load_bundle
from models.mechanisms import ATTENTIONS
from service.engines import open_engine
from service.engines.base import Engine, Floats, Ids
from tests.support.small_bundle import shared_bundle

BOUND = 1e-4  # of a certificate, in probability
LENGTHS = (1, 2, 13, 67, 128, 251, 509)  # odd, prime, and around blocks and windows
SMALL: dict[str, dict[str, Any]] = {
    "linformer": {"k": 16, "max_length": 512},
    "nystromformer": {"landmarks": 8, "conv_kernel": 5},
    "performer": {"features": 16},
    "skyformer": {"landmarks": 8},
    "infinite_former": {"segment": 32, "basis": 8, "samples": 16},
    "longformer": {"window": 16, "global_tokens": 2},
    "bigbird": {"block": 8},
    "sparse": {"stride": 16},
    "blockwise": {"blocks": 3},
    "reformer": {"buckets": 8, "chunk": 16},
    "informer": {"queries": 2, "keys": 2},
}
#: Variants whose graph is another: small bundles by a name of their own.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "infinite_former-sticky": (
        "infinite_former",
        {"segment": 32, "basis": 8, "samples": 16, "sticky": True},
    ),
    "longformer-own_projections": (
        "longformer",
        {"window": 16, "global_tokens": 2, "own_projections": True},
    ),
    "performer-relu": ("performer", {"features": 16, "feature_map": "relu"}),
    "sparse-fixed": ("sparse", {"stride": 16, "pattern": "fixed"}),
}
BUNDLED = [pytest.param(path, id=path.name) for path in find_bundles()]
SMALL_BUNDLES = [
    pytest.param(name, id=f"small-{name}", marks=pytest.mark.slow)
    for name in (*ATTENTIONS.names(), *VARIANTS)
]


@cache
def opened(source: Path | str, engine: str) -> tuple[Bundle, Engine]:
    """A bundle that ships, or a small one of a mechanism, in an engine."""
    if isinstance(source, Path):
        bundle = load_bundle(source)
    else:
        name, params = VARIANTS.get(source, (source, SMALL.get(source, {})))
        bundle = shared_bundle(name, **params)
    return bundle, open_engine(bundle, engine=engine, device="cpu")


def documents(bundle: Bundle, lengths: tuple[int, ...], seed: int = 0) -> tuple[Ids, Ids]:
    """Random tokens, with ids in the padding that no vocabulary has."""
    random = np.random.default_rng(seed)
    ids = random.integers(0, bundle.manifest.config.vocab_size, (len(lengths), max(lengths)))
    ids[np.arange(max(lengths)) >= np.array(lengths)[:, None]] = 1 << 40
    return ids, np.array(lengths)


def distance(a: Floats, b: Floats) -> float:
    return float(np.abs(probabilities(a) - probabilities(b)).max())


@pytest.mark.parametrize("source", [*BUNDLED, *SMALL_BUNDLES])
def test_the_engines_agree(source: Path | str) -> None:
    bundle, onnx_engine = opened(source, "onnxruntime")
    _, torch_engine = opened(source, "torch")
    for length in LENGTHS:
        for batch in ((length,), (length, max(1, length // 2), 1)):
            ids, lengths = documents(bundle, batch, seed=length)
            ours = onnx_engine.run(ids, lengths, contributions=True)
            theirs = torch_engine.run(ids, lengths, contributions=True)
            assert distance(ours.logits, theirs.logits) <= BOUND
            assert ours.contributions is not None
            assert theirs.contributions is not None
            np.testing.assert_allclose(ours.contributions, theirs.contributions, atol=BOUND)


@pytest.mark.parametrize("engine", ["onnxruntime", "torch"])
@pytest.mark.parametrize("source", [*BUNDLED, *SMALL_BUNDLES])
def test_a_document_is_answered_alike_in_any_company(source: Path | str, engine: str) -> None:
    bundle, opened_engine = opened(source, engine)
    ids, lengths = documents(bundle, LENGTHS)
    together = opened_engine.run(ids, lengths).logits
    for row, length in enumerate(LENGTHS):
        alone = opened_engine.run(ids[row : row + 1, :length], lengths[row : row + 1]).logits
        assert distance(alone, together[row : row + 1]) <= BOUND


@pytest.mark.parametrize("engine", ["onnxruntime", "torch"])
@pytest.mark.parametrize("source", [*BUNDLED, *SMALL_BUNDLES])
def test_contributions_add_up_and_padding_has_none(source: Path | str, engine: str) -> None:
    bundle, opened_engine = opened(source, engine)
    ids, lengths = documents(bundle, (67, 20, 1))
    output = opened_engine.run(ids, lengths, contributions=True)
    assert output.contributions is not None
    assert output.contributions.shape == (3, 67, len(bundle.manifest.labels))
    for row, length in enumerate(lengths):
        assert not output.contributions[row, length:].any()
    sums = output.contributions.sum(axis=1)
    biases = output.logits - sums  # the head's bias, the same for every document
    np.testing.assert_allclose(biases, np.broadcast_to(biases[:1], biases.shape), atol=1e-4)
    plain = opened_engine.run(ids, lengths)
    assert plain.contributions is None
    np.testing.assert_allclose(plain.logits, output.logits, atol=1e-5)


@pytest.mark.parametrize("source", BUNDLED)
def test_every_bundled_classifier_has_a_valid_certificate(source: Path) -> None:
    bundle, engine = opened(source, "onnxruntime")
    assert bundle.manifest.graphs["fp32"].valid
    certificate = bundle.certificate("fp32")
    assert certificate["largest_difference"]["probability"] <= BOUND
    assert certificate["batch_invariance"]["onnxruntime"] <= BOUND
    assert engine.info.engine == "onnxruntime"
    assert sum(entry.bytes for entry in bundle.manifest.files.values()) <= 7_000_000
