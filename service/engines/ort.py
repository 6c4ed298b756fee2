"""Runs a bundle's graph in ONNX Runtime, on a CPU or on CUDA. Imports no torch."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnxruntime as ort

from models.errors import EngineError, bundle_errors
from models.onnx_graph import with_weights
from models.onnx_network import OnnxNetwork
from service.engines.base import Engine, EngineInfo, Ids, Output, check_batch, check_finite
from service.engines.heap import trim_heap

CPU = "CPUExecutionProvider"
CUDA = "CUDAExecutionProvider"
INSTALL_CUDA = (
    "install the CUDA driver, and `onnxruntime-gpu[cuda,cudnn]` in place of onnxruntime, or use "
    "--device cpu"
)

_library = ort.capi.onnxruntime_pybind11_state
#: Every exception that the library raises; none has a base of its own.
FAULTS = (
    _library.DeviceReset,
    _library.EPFail,
    _library.EngineError,
    _library.Fail,
    _library.InvalidArgument,
    _library.InvalidGraph,
    _library.InvalidProtobuf,
    _library.ModelLoadCanceled,
    _library.ModelLoaded,
    _library.ModelRequiresCompilation,
    _library.NoModel,
    _library.NoSuchFile,
    _library.NotFound,
    _library.NotImplemented,
    _library.RuntimeException,
)
_NO_MEMORY = ("bad_alloc", "bad allocation", "failed to allocate", "out of memory")
_SHRINK = ort.RunOptions()
_SHRINK.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
# Every length is a shape of its own: memory grows by what is asked for, and nothing is tried out.
_CUDA_OPTIONS = {
    "arena_extend_strategy": "kSameAsRequested",
    "cudnn_conv_algo_search": "DEFAULT",
}
_FATAL = 4  # whatever goes wrong is raised; the library need not also print it


class OnnxRuntimeEngine(Engine):
    """One session, shared by all threads that call `run`.

    `device` is cpu or cuda; a session that in truth uses another one is refused. On a CPU, all
    sessions take memory from one arena but those with an arena of their own (`own_memory`).
    """

    def __init__(
        self,
        network: OnnxNetwork,
        *,
        device: str,
        precision: str,
        threads: int,
        reason: str,
        own_memory: bool = False,
    ) -> None:
        self._network = network
        self._most_tokens = network.config.max_length or math.inf
        self._vocabulary = network.config.vocab_size
        place = CUDA if device == "cuda" else CPU
        self._tables = _share_tables(network, place)  # must outlive the session
        self._session = _open_session(network, self._tables, place, threads, own_memory=own_memory)
        provider = str(self._session.get_providers()[0])
        if device == "cuda" and provider != CUDA:
            raise EngineError(f"ONNX Runtime could not start CUDA and fell back; {INSTALL_CUDA}")
        self.info = EngineInfo("onnxruntime", device, provider, precision, threads, reason)

    def run(
        self,
        ids: Ids,
        lengths: Ids,
        *,
        contributions: bool = False,
        release_memory: bool = False,
    ) -> Output:
        """Classify; only what is asked for is computed."""
        if not self._is_one_whole(ids, lengths):
            check_batch(ids, lengths, self._network.config)
        inputs = {"ids": ids, "lengths": lengths}
        names = ["logits", "states", "counts"] if contributions else ["logits"]
        try:
            if self.info.device == "cuda":
                outputs = run_bound(self._session, inputs, names, "cuda")
            else:
                outputs = self._session.run(names, inputs, _SHRINK if release_memory else None)
        except FAULTS as error:
            raise fault_of_run(error) from error
        if release_memory and self.info.device == "cpu":
            trim_heap()
        if not np.isfinite(outputs[0]).all():
            check_finite(outputs[0])
        if not contributions:
            return Output(outputs[0])
        return Output(outputs[0], self._network.contributions(outputs[1], outputs[2]))

    def _is_one_whole(self, ids: Ids, lengths: Ids) -> bool:
        """Whether this is one document that the network reads, as most batches are."""
        return (
            ids.dtype == lengths.dtype == np.int64
            and ids.shape == (1, *lengths.tolist())
            and 0 < ids.size <= self._most_tokens
            and bool(ids.view(np.uint64).max() < self._vocabulary)
        )

    def close(self) -> None:
        """Let the session go."""
        del self._session, self._tables


@dataclass(frozen=True)
class OnnxRuntimeFactory:
    """Opens sessions of one graph on one device."""

    network: OnnxNetwork
    device: str
    precision: str
    reason: str

    def open(self, *, threads: int, own_memory: bool = False) -> OnnxRuntimeEngine:
        """Open a session of its own.

        An arena is locked at each of the hundreds of times that a run asks it for memory: two
        threads that share one spend up to a third of their time on that with short documents.
        """
        return OnnxRuntimeEngine(
            self.network,
            device=self.device,
            precision=self.precision,
            threads=threads,
            reason=self.reason,
            own_memory=own_memory,
        )


def fault_of_run(error: Exception) -> Exception:
    """What a fault of the library means to the caller of `run`."""
    text = str(error).lower()
    if any(sign in text for sign in _NO_MEMORY):
        return MemoryError("the run needed more memory than there is")
    return EngineError(f"ONNX Runtime could not run a batch: {error}")


def run_bound(
    session: ort.InferenceSession, inputs: dict[str, Any], names: list[str], device: str
) -> list[Any]:
    """Run with inputs and outputs bound to the device's memory; only results are copied back."""
    binding = session.io_binding()
    for name, value in inputs.items():
        binding.bind_cpu_input(name, value)
    for name in names:
        binding.bind_output(name, device)
    session.run_with_iobinding(binding)
    outputs: list[Any] = binding.copy_outputs_to_cpu()
    return outputs


def _share_tables(network: OnnxNetwork, provider: str) -> dict[str, ort.OrtValue]:
    """The tables whose rows are only looked up, as the network's own memory: no session copies."""
    names = network.graph.gathered if provider == CPU else frozenset()
    return {name: ort.OrtValue.ortvalue_from_numpy(network.weights[name]) for name in names}


def _open_session(
    network: OnnxNetwork,
    tables: dict[str, ort.OrtValue],
    provider: str,
    threads: int,
    *,
    own_memory: bool,
) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = _FATAL
    options.enable_mem_pattern = False  # patterns are kept per shape, and every length is one
    if provider == CPU and not own_memory:
        _open_arena()
        options.add_session_config_entry("session.use_env_allocators", "1")
    providers: list[Any] = [CPU]
    if provider == CUDA:
        ort.preload_dlls()  # CUDA's libraries, wherever pip put them
        providers = [(CUDA, _CUDA_OPTIONS), CPU]
    # The library takes memory of ours in place of a tensor of the graph: one row stands there.
    for name, table in tables.items():
        options.add_initializer(name, table)
    with bundle_errors(f"ONNX Runtime cannot open {network.name}"):
        graph = with_weights(network.graph, network.weights, frozenset(tables))
        return ort.InferenceSession(graph, options, providers=providers)


@functools.cache
def _open_arena() -> None:
    """Give the process one arena: what a run of one session has used, another's can use again."""
    kind = ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR
    place = ort.OrtMemoryInfo("Cpu", kind, 0, ort.OrtMemType.DEFAULT)
    ort.create_and_register_allocator(place, None)
