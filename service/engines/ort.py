"""Runs a bundle's graph in ONNX Runtime, on a CPU or on CUDA. Imports no torch."""

from __future__ import annotations

import functools
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from models.encoders.config import NetworkConfig
from models.errors import BundleError, EngineError
from service.engines.base import Engine, EngineInfo, Ids, Output, check_batch
from service.engines.heap import trim_heap

CPU = "CPUExecutionProvider"
CUDA = "CUDAExecutionProvider"
INSTALL_CUDA = (
    "install the CUDA driver and onnxruntime-gpu in place of onnxruntime, or use --device cpu"
)

_faults = ort.capi.onnxruntime_pybind11_state
#: What the library raises when it cannot open or run a graph.
FAULTS = (
    _faults.Fail,
    _faults.InvalidGraph,
    _faults.InvalidProtobuf,
    _faults.NoSuchFile,
    _faults.NotImplemented,
    _faults.RuntimeException,
)
_FATAL = 4  # whatever goes wrong is raised; the library need not also print it


class OnnxRuntimeEngine(Engine):
    """One session, shared by all threads that call `run`.

    `device` is cpu or cuda; a session that in truth uses another one is refused. On a CPU, all
    sessions take memory from one arena but those with an arena of their own (`own_memory`).
    """

    def __init__(
        self,
        graph: Path,
        config: NetworkConfig,
        *,
        device: str,
        precision: str,
        threads: int,
        reason: str,
        own_memory: bool = False,
    ) -> None:
        self._graph, self._config = graph, config
        place = CUDA if device == "cuda" else CPU
        self._session = _open_session(graph, place, threads, own_memory=own_memory)
        provider = str(self._session.get_providers()[0])
        if device == "cuda" and provider != CUDA:
            raise EngineError(f"ONNX Runtime could not start CUDA and fell back; {INSTALL_CUDA}")
        self.info = EngineInfo("onnxruntime", device, provider, precision, threads, reason)

    def run(self, ids: Ids, lengths: Ids, *, contributions: bool = False) -> Output:
        """Classify; only what is asked for is computed."""
        check_batch(ids, lengths, self._config)
        inputs = {"ids": ids, "lengths": lengths, "explain": np.array(contributions)}
        names = ["logits", "contributions"] if contributions else ["logits"]
        if self.info.device == "cuda":
            outputs = run_bound(self._session, inputs, names, "cuda")
        else:
            outputs = self._session.run(names, inputs)
        return Output(outputs[0], outputs[1] if contributions else None)

    def widened(self, threads: int) -> Engine | None:
        """Another session of the same graph, which takes memory from the same arena."""
        return self._again(threads, own_memory=False)

    def doubled(self) -> Engine | None:
        """Another session of the same graph, with an arena of its own.

        An arena is locked at each of the hundreds of times that a run asks it for memory: two
        threads with short documents spend up to a third of their time on that.
        """
        return self._again(self.info.threads, own_memory=True)

    def shrink(self) -> None:
        """Give back the arena's regions that nobody uses, on a CPU.

        The library does so only at the end of a run: the shortest there is.
        """
        if self.info.device != "cpu":
            return
        inputs = {"ids": np.zeros((1, 1), np.int64), "lengths": np.ones(1, np.int64)}
        options = ort.RunOptions()
        options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        with suppress(*FAULTS):  # what cannot be given back now is kept until the next time
            self._session.run(["logits"], inputs | {"explain": np.array(False)}, options)
        trim_heap()

    def _again(self, threads: int, *, own_memory: bool) -> Engine | None:
        info = self.info
        if info.device != "cpu":
            return None
        return OnnxRuntimeEngine(
            self._graph,
            self._config,
            device=info.device,
            precision=info.precision,
            threads=threads,
            reason=info.reason,
            own_memory=own_memory,
        )

    def close(self) -> None:
        """Let the session go."""
        del self._session


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


def _open_session(
    graph: Path, provider: str, threads: int, *, own_memory: bool
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
    providers = [provider] if provider == CPU else [provider, CPU]
    try:
        return ort.InferenceSession(graph, options, providers=providers)
    except FAULTS as error:
        raise BundleError(f"ONNX Runtime cannot open {graph}: {error}") from None


@functools.cache
def _open_arena() -> None:
    """Give the process one arena: what a run of one session has used, another's can use again."""
    kind = ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR
    place = ort.OrtMemoryInfo("Cpu", kind, 0, ort.OrtMemType.DEFAULT)
    ort.create_and_register_allocator(place, None)
