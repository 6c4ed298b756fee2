"""Runs a bundle's graph in OpenVINO, on a CPU, in float32 or in 16 bits. Imports no torch.

OpenVINO compiles the float32 graph and computes in the precision asked for where the processor
has it; what it really chose is read back. It computes whole numbers in float32, so that no graph
may depend on one beyond 2^24 (see `models.inputs.pair_rows`).
"""

from __future__ import annotations

import functools
import queue
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import openvino as ov

from models.errors import EngineError, bundle_errors
from models.onnx_network import OnnxNetwork
from service.engines.base import Engine, EngineInfo, Ids, Output, check_batch, check_finite
from service.engines.heap import trim_heap

#: What may be asked for, and OpenVINO's name for it.
PRECISIONS: Mapping[str, Any] = {
    "fp32": ov.Type.f32,
    "bf16": ov.Type.bf16,
    "f16": ov.Type.f16,
}
_NO_MEMORY = ("bad_alloc", "allocate", "out of memory")
_KEPT_SHAPES = 64  # kernels are kept by shape, and every length is one


class OpenVinoEngine(Engine):
    """One compiled network; each thread that calls `run` at the same time has a request of its own.

    A precision that this processor does not compute in is refused. The mean over the document and
    the head are computed here, in float32.
    """

    def __init__(self, network: OnnxNetwork, *, precision: str, threads: int, reason: str) -> None:
        self._network = network
        options = {
            "INFERENCE_PRECISION_HINT": PRECISIONS[precision],
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": 1,
            "ENABLE_CPU_PINNING": False,
            "CPU_RUNTIME_CACHE_CAPACITY": _KEPT_SHAPES,
        }
        with bundle_errors(f"OpenVINO cannot open {network.name}"):
            model = _core().read_model(network.onnx())
            self._compiled = _core().compile_model(model, "CPU", options)
        used = self._compiled.get_property("INFERENCE_PRECISION_HINT")
        if used != PRECISIONS[precision]:
            name = _core().get_property("CPU", "FULL_DEVICE_NAME")
            raise EngineError(
                f"OpenVINO computes in {used.to_string()} where {precision} was asked for: this "
                f"processor ({name}) does not have it; choose another --precision"
            )
        self._idle: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.info = EngineInfo("openvino", "cpu", "OpenVINO CPU", precision, threads, reason)

    def run(
        self,
        ids: Ids,
        lengths: Ids,
        *,
        contributions: bool = False,
        release_memory: bool = False,
    ) -> Output:
        """Classify; contributions are worked out only on request."""
        check_batch(ids, lengths, self._network.config)
        real = np.arange(ids.shape[1]) < lengths[:, None]  # (batch, n)
        try:
            with self._request() as request:
                request.infer({"ids": np.where(real, ids, 0), "lengths": lengths})
                states, counts = (request.get_tensor(name).data for name in ("states", "counts"))
                logits = self._network.logits(states, counts)
                shares = self._network.contributions(states, counts) if contributions else None
        except RuntimeError as error:
            raise fault_of_run(error) from error
        check_finite(logits)
        if release_memory:
            with suppress(RuntimeError):  # another thread computes: it is kept until later
                self._compiled.release_memory()
            trim_heap()
        return Output(logits, shares)

    @contextmanager
    def _request(self) -> Iterator[Any]:
        """A request that no other thread uses meanwhile."""
        try:
            request = self._idle.get_nowait()
        except queue.Empty:
            request = self._compiled.create_infer_request()
        try:
            yield request
        finally:
            self._idle.put(request)

    def close(self) -> None:
        """Let the network go."""
        del self._compiled, self._idle


@dataclass(frozen=True)
class OpenVinoFactory:
    """Compiles further engines of one network."""

    network: OnnxNetwork
    precision: str
    reason: str

    def open(self, *, threads: int, own_memory: bool = False) -> OpenVinoEngine:
        """Compile another one; each has memory of its own in any case."""
        del own_memory
        return OpenVinoEngine(
            self.network, precision=self.precision, threads=threads, reason=self.reason
        )


def fault_of_run(error: Exception) -> Exception:
    """What a fault of the library means to whoever called `run`."""
    if any(sign in str(error).lower() for sign in _NO_MEMORY):
        return MemoryError("the run needed more memory than there is")
    said = " ".join(str(error).split())[:300]
    return EngineError(f"OpenVINO could not run a batch: {said}")


@functools.cache
def _core() -> ov.Core:
    return ov.Core()
