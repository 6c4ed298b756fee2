"""Which engine is chosen and why, what engines refuse, and what the ONNX path leaves alone."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from models.bundle import ROOT, Bundle, Graph, load_bundle
from models.config import ModelConfig
from models.errors import BundleError, ConfigError, EngineError, ShapeError
from models.onnx_network import make_network, read_network
from service.engines import open_engine, open_with_factory
from service.engines.base import Engine, Ids, check_batch
from service.engines.ort import FAULTS, OnnxRuntimeEngine, fault_of_run, run_bound
from tests.support.small_bundle import shared_bundle

CONFIG = ModelConfig(
    vocab_size=10, num_labels=2, attention="linformer", attention_params={"k": 4, "max_length": 6}
)


@pytest.fixture
def bundle() -> Bundle:
    return shared_bundle()


def with_graph(bundle: Bundle, **changes: object) -> Bundle:
    """The bundle with another description of its fp32 graph."""
    graph = bundle.manifest.graphs["fp32"].model_copy(update=changes)
    return replace(bundle, manifest=bundle.manifest.model_copy(update={"graphs": {"fp32": graph}}))


def documents(bundle: Bundle, *lengths: int) -> tuple[Ids, Ids]:
    random = np.random.default_rng(len(lengths))
    ids = random.integers(0, bundle.manifest.config.vocab_size, (len(lengths), max(lengths)))
    return ids, np.array(lengths)


def test_a_valid_graph_is_served_by_onnx_runtime(bundle: Bundle) -> None:
    engine = open_engine(bundle)
    assert (engine.info.engine, engine.info.device) == ("onnxruntime", "cpu")
    assert engine.info.provider == "CPUExecutionProvider"
    assert engine.info.reason == "the bundle's graph is valid; this ONNX Runtime has no CUDA"


def test_torch_serves_on_request(bundle: Bundle) -> None:
    engine = open_engine(bundle, engine="torch", device="cpu")
    assert engine.info.label == "torch:cpu"
    assert engine.info.reason == "asked for; cpu was asked for"


def test_torch_serves_a_bundle_whose_graph_is_not_valid(bundle: Bundle) -> None:
    broken = with_graph(bundle, valid=False, reason="probabilities differ by 0.3")
    engine = open_engine(broken)
    assert engine.info.engine == "torch"
    assert "probabilities differ by 0.3" in engine.info.reason
    with pytest.raises(EngineError, match=r"probabilities differ by 0\.3"):
        open_engine(broken, engine="onnxruntime")


def test_a_certificate_of_another_graph_does_not_count(bundle: Bundle) -> None:
    manifest = bundle.manifest
    entry = manifest.files["model.onnx"].model_copy(update={"sha256": "0" * 64})
    files = {**manifest.files, "model.onnx": entry}
    other = replace(bundle, manifest=manifest.model_copy(update={"files": files}))
    engine = open_engine(other)
    assert engine.info.engine == "torch"
    assert "certificate.fp32.json is of another graph" in engine.info.reason


def test_another_precision_is_never_replaced(bundle: Bundle) -> None:
    with pytest.raises(EngineError, match="was not exported as int8, only as: fp32"):
        open_engine(bundle, precision="int8")
    with pytest.raises(EngineError, match="PyTorch serves fp32 only"):
        open_engine(bundle, engine="torch", precision="fp16")


@pytest.mark.parametrize("engine", ["onnxruntime", "torch"])
def test_cuda_where_there_is_none_says_what_to_install(bundle: Bundle, engine: str) -> None:
    with pytest.raises(EngineError, match="install the CUDA driver"):
        open_engine(bundle, engine=engine, device="cuda")


@pytest.mark.filterwarnings("ignore:Specified provider")
def test_cuda_that_is_listed_but_does_not_start(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """onnxruntime-gpu lists CUDA on machines without it; here only the list is made up."""
    listed = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: listed)
    engine = open_engine(bundle)
    assert engine.info.device == "cpu"
    assert "CUDA is installed but does not start" in engine.info.reason
    with pytest.raises(EngineError, match="could not start CUDA"):
        open_engine(bundle, device="cuda")


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"engine": "tensorrt"}, "engine must be one of auto, onnxruntime, openvino, torch"),
        ({"device": "tpu"}, "device must be one of auto, cpu, cuda"),
        ({"threads": 0}, "threads must be at least 1"),
    ],
)
def test_a_choice_there_is_not_is_refused(
    bundle: Bundle, choice: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        open_engine(bundle, **choice)  # type: ignore[arg-type]


def test_a_graph_that_is_none_is_refused(bundle: Bundle) -> None:
    with pytest.raises(BundleError, match=r"model\.onnx is not an ONNX graph"):
        make_network(b"not a graph", bundle.tensors(), bundle.manifest.config, "model.onnx")


def test_a_graph_that_onnx_runtime_refuses_is_named(bundle: Bundle) -> None:
    network = read_network(bundle, "fp32")
    content = network.graph.content.replace(b"MatMul", b"MatMal")
    broken = make_network(content, bundle.tensors(), network.config, "model.onnx")
    with pytest.raises(BundleError, match=r"cannot open model\.onnx: .*MatMal"):
        OnnxRuntimeEngine(broken, device="cpu", precision="fp32", threads=1, reason="")


def test_sessions_share_the_tables(bundle: Bundle) -> None:
    network = read_network(bundle, "fp32")
    assert network.graph.gathered == {"embedding.weight"}
    network = replace(network, weights={n: v.copy() for n, v in network.weights.items()})
    one = OnnxRuntimeEngine(network, device="cpu", precision="fp32", threads=1, reason="")
    other = OnnxRuntimeEngine(network, device="cpu", precision="fp32", threads=1, reason="")
    ids, lengths = documents(bundle, 20)
    before = one.run(ids, lengths).logits
    np.multiply(network.weights["embedding.weight"], 2, out=network.weights["embedding.weight"])
    for engine in (one, other):
        assert np.abs(engine.run(ids, lengths).logits - before).max() > 1e-3


@pytest.mark.parametrize(
    ("ids", "lengths", "message"),
    [
        (np.zeros((1, 3), np.int32), np.array([3]), "must be int64"),
        (np.zeros(3, np.int64), np.array([3]), r"ids must be \(batch, n\)"),
        (np.zeros((2, 3), np.int64), np.array([3]), r"lengths \(batch,\)"),
        (np.zeros((0, 3), np.int64), np.zeros(0, np.int64), "neither of them empty"),
        (np.zeros((1, 7), np.int64), np.array([3]), "at most 6 tokens; got n=7"),
        (np.zeros((1, 3), np.int64), np.array([0]), "lengths must be from 1 to n=3"),
        (np.zeros((1, 3), np.int64), np.array([4]), "lengths must be from 1 to n=3"),
        (np.array([[1, 10, 0]]), np.array([2]), "token ids must be from 0 to 9; got 1 to 10"),
        (np.array([[1, -1, 0]]), np.array([2]), "token ids must be from 0 to 9; got -1 to 1"),
    ],
)
def test_what_no_network_can_read_is_refused(ids: Ids, lengths: Ids, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        check_batch(ids, lengths, CONFIG)


def test_padding_may_hold_anything() -> None:
    check_batch(np.array([[1, 9, 1 << 50], [5, -7, -7]]), np.array([2, 1]), CONFIG)


def test_bound_memory_gives_the_same_answers(bundle: Bundle) -> None:
    """The path that CUDA takes, run on the CPU provider."""
    ids, lengths = documents(bundle, 20, 11)
    expected = open_engine(bundle).run(ids, lengths, contributions=True)
    network = read_network(bundle, "fp32")
    session = onnxruntime.InferenceSession(network.onnx())
    inputs = {"ids": ids, "lengths": lengths}
    logits, states, counts = run_bound(session, inputs, ["logits", "states", "counts"], "cpu")
    contributions = network.contributions(states, counts)
    np.testing.assert_allclose(logits, expected.logits, atol=1e-6)
    assert expected.contributions is not None
    np.testing.assert_allclose(contributions, expected.contributions, atol=1e-6)


def open_onnx(bundle: Bundle) -> Engine:
    return open_engine(bundle, engine="onnxruntime")


def open_torch(bundle: Bundle) -> Engine:
    return open_engine(bundle, engine="torch")


@pytest.mark.parametrize("opener", [open_onnx, open_torch])
def test_one_engine_serves_several_threads_at_once(
    bundle: Bundle, opener: Callable[[Bundle], Engine]
) -> None:
    engine = opener(bundle)
    batches = [documents(bundle, *range(1, 2 + size % 5), 10 + size) for size in range(40)]
    expected = [engine.run(*batch).logits for batch in batches]
    with ThreadPoolExecutor(4) as pool:
        actual = list(pool.map(lambda batch: engine.run(*batch).logits, batches * 3))
    for found, wanted in zip(actual, expected * 3, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_serving_onnx_starts_no_thread_and_imports_no_torch(bundle: Bundle) -> None:
    script = """
import sys
import numpy as np
import psutil
from models.bundle import load_bundle
from service.engines import open_engine, open_with_factory
bundle = load_bundle(sys.argv[1])
import onnxruntime
threads = psutil.Process().num_threads()
engine = open_engine(bundle, threads=1)
output = engine.run(np.ones((2, 300), np.int64), np.array([300, 5]), contributions=True)
assert engine.info.engine == "onnxruntime" and output.contributions is not None
assert psutil.Process().num_threads() == threads
loaded = {"torch", "onnx", "onnxscript", "safetensors"} & set(sys.modules)
assert not loaded, loaded
"""
    subprocess.run([sys.executable, "-c", script, str(bundle.path)], check=True)


def test_a_missing_torch_is_named(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "torch" else name)
    with pytest.raises(EngineError, match=r"pip install 'longdoc\[torch\]'"):
        open_engine(bundle, engine="torch")


def test_a_missing_onnx_runtime_is_named(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(EngineError, match="pip install onnxruntime, or 'onnxruntime-gpu"):
        open_engine(bundle)


def test_two_packages_of_onnx_runtime_are_told_apart(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.engines.choose.distributions", lambda name: iter([name]))
    with pytest.raises(EngineError, match="both installed and overwrite each other"):
        open_engine(bundle)


def test_a_graph_without_a_file_is_no_choice(bundle: Bundle) -> None:
    graph = Graph(file=None, certificate="certificate.fp32.json", valid=False, reason="too slow")
    bare = replace(bundle, manifest=bundle.manifest.model_copy(update={"graphs": {"fp32": graph}}))
    with pytest.raises(EngineError, match="too slow"):
        open_engine(bare, engine="onnxruntime")


def test_every_exception_of_onnx_runtime_is_mapped() -> None:
    library = vars(onnxruntime.capi.onnxruntime_pybind11_state).values()
    raised = {each for each in library if isinstance(each, type) and issubclass(each, Exception)}
    assert len(raised) >= 15
    assert raised == set(FAULTS)


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : std::bad_alloc", MemoryError),
        ("bfc_arena.cc:358 Failed to allocate memory for requested buffer of size 1", MemoryError),
        ("CUDA out of memory", MemoryError),
        ("[ONNXRuntimeError] : 2 : INVALID_ARGUMENT : Got invalid dimensions", EngineError),
    ],
)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_a_run_says_whether_memory_was_missing(
    fault: type[Exception], message: str, kind: type[Exception]
) -> None:
    assert isinstance(fault_of_run(fault(message)), kind)


def test_a_graph_that_fails_while_it_runs_is_an_error_of_the_engine(bundle: Bundle) -> None:
    """Through the library itself: its own words, mapped."""
    config = replace(bundle.manifest.config, vocab_size=10_000)  # ids pass that the graph has not
    network = replace(read_network(bundle, "fp32"), config=config)
    engine = OnnxRuntimeEngine(network, device="cpu", precision="fp32", threads=1, reason="-")
    with pytest.raises(EngineError, match=r"could not run a batch: .*indices"):
        engine.run(np.array([[9_999]]), np.array([1]))


def test_memory_that_the_system_refuses_is_a_memory_error(bundle: Bundle) -> None:
    """In a process with little address space: the library's own failure to allocate, mapped."""
    script = """
import resource, sys
import numpy as np
from models.bundle import load_bundle
from service.engines import open_engine
engine = open_engine(load_bundle(sys.argv[1]), device="cpu", engine=sys.argv[2])
engine.run(np.zeros((1, 8), np.int64), np.array([8]))
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), -1))
try:
    engine.run(np.zeros((256, 4096), np.int64), np.full(256, 4096))
except MemoryError:
    engine.run(np.zeros((1, 8), np.int64), np.array([8]))
    print("refused, and goes on")
"""
    for name in ("onnxruntime", "torch"):
        command = [sys.executable, "-c", script, str(bundle.path), name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.stdout == "refused, and goes on\n", done.stderr[-2000:]


def test_engines_of_one_factory_answer_alike_and_outlive_each_other(bundle: Bundle) -> None:
    opened = open_with_factory(bundle, engine="onnxruntime", device="cpu")
    assert opened.factory is not None
    other = opened.factory.open(threads=1, own_memory=True)
    assert other.info == opened.engine.info
    batch = documents(bundle, 67, 31)
    np.testing.assert_array_equal(other.run(*batch).logits, opened.engine.run(*batch).logits)
    opened.engine.close()
    other.run(*batch)
    other.close()


@pytest.mark.parametrize("own_memory", [False, True])
def test_onnx_runtime_gives_back_what_a_long_document_needed(own_memory: bool) -> None:
    bundle = load_bundle(ROOT / "elife-nystromformer")
    opened = open_with_factory(bundle, engine="onnxruntime", device="cpu")
    assert opened.factory is not None
    used = opened.factory.open(threads=1, own_memory=own_memory)
    ids, lengths = documents(bundle, 16_384)
    before = used.run(ids, lengths).logits
    held = resident_bytes()
    used.run(np.zeros((1, 1), np.int64), np.ones(1, np.int64), release_memory=True)
    assert held - resident_bytes() > 50 << 20
    np.testing.assert_array_equal(used.run(ids, lengths, release_memory=True).logits, before)


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
