"""The OpenVINO engine: its contract, how far it is from float32, and what it refuses."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import numpy as np
import pytest

from longdoc import main
from models.bundle import Bundle, load_bundle
from models.errors import EngineError
from models.onnx_network import read_network
from service.engines import open_engine
from service.engines.check import check_engine
from tests.support.small_bundle import shared_bundle

if importlib.util.find_spec("openvino") is None:
    pytest.skip("OpenVINO is an extra", allow_module_level=True)

from service.engines.openvino import OpenVinoEngine

BOUNDS = {"fp32": 1e-4, "bf16": 0.02}
COMPANY = {"fp32": 1e-4, "bf16": 0.005}


def opened(bundle: Bundle, precision: str) -> OpenVinoEngine:
    """An engine, where this processor computes in that precision."""
    try:
        network = read_network(bundle, "fp32")
        return OpenVinoEngine(network, precision=precision, threads=1, reason="a test")
    except EngineError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_it_keeps_the_contract(precision: str) -> None:
    bundle = shared_bundle()
    opened(bundle, precision).close()
    check_engine(
        lambda: opened(bundle, precision),
        vocab_size=bundle.manifest.config.vocab_size,
        tolerance=COMPANY[precision],
    )


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_it_stays_near_onnx_runtime(precision: str) -> None:
    bundle = shared_bundle()
    engine, exact = opened(bundle, precision), open_engine(bundle, device="cpu")
    random = np.random.default_rng(0)
    for n in (1, 17, 128, 511):
        ids = random.integers(0, bundle.manifest.config.vocab_size, (2, n))
        lengths = np.array([n, (n + 1) // 2])
        found, wanted = (each.run(ids, lengths).logits for each in (engine, exact))
        shares = [np.exp(x - x.max(1, keepdims=True)) for x in (found, wanted)]
        shares = [x / x.sum(1, keepdims=True) for x in shares]
        assert np.abs(shares[0] - shares[1]).max() <= BOUNDS[precision]


def test_a_precision_that_the_processor_lacks_is_refused() -> None:
    network = read_network(shared_bundle(), "fp32")
    flags = Path("/proc/cpuinfo").read_text()
    if "avx512_fp16" in flags:
        pytest.skip("this processor computes in float16")
    with pytest.raises(EngineError, match="where f16 was asked for: this processor"):
        OpenVinoEngine(network, precision="f16", threads=1, reason="a test")


@pytest.mark.slow
def test_only_what_was_certified_is_served(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(shutil.copytree(shared_bundle().path, tmp_path / "copy"))
    with pytest.raises(
        EngineError, match=r"not exported as openvino-fp32.*longdoc verify .* --add"
    ):
        open_engine(load_bundle(path), engine="openvino")
    with pytest.raises(EngineError, match="computes in fp32, bf16, f16, not in int8"):
        open_engine(load_bundle(path), engine="openvino", precision="int8")
    with pytest.raises(EngineError, match="serves on CPUs"):
        open_engine(load_bundle(path), engine="openvino", device="cuda")
    command = ["verify", str(path), "--engine", "openvino", "--precision", "fp32", "--add"]
    assert main([*command, "--documents", "20"]) == 0
    assert "openvino-fp32: holds" in capsys.readouterr().out
    bundle = load_bundle(path)
    certificate = bundle.certificate("openvino-fp32")
    assert certificate["batch_invariance"]["openvino"] <= 1e-4
    engine = open_engine(bundle, engine="openvino")
    assert engine.info.label == "openvino:cpu"
    assert engine.run(np.array([[1, 2]]), np.array([2])).logits.shape == (1, 3)
