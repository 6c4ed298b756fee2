"""Runs a bundle's network in PyTorch: for bundles without a valid graph, or on request."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from models.encoders.config import NetworkConfig
from models.errors import EngineError, bundle_errors
from models.networks import build_network
from models.tensors import Array
from models.weights import fill_weights
from service.engines.base import Engine, EngineInfo, Ids, Output, check_batch, check_finite
from service.engines.heap import trim_heap

_NO_MEMORY = "DefaultCPUAllocator"  # in what the allocator of a CPU raises


def cuda_works() -> bool:
    """Whether PyTorch finds a CUDA device that it can use."""
    return torch.cuda.is_available()


class TorchEngine(Engine):
    """The network itself, with the bundle's weights. PyTorch's threads are the whole process's."""

    def __init__(
        self,
        tensors: Mapping[str, Array],
        config: NetworkConfig,
        *,
        device: str,
        threads: int,
        reason: str,
    ) -> None:
        torch.set_num_threads(threads)
        self._config = config
        with bundle_errors("PyTorch cannot build the bundle's network"):
            self._model = build_network(config).eval()
        values = {name: torch.tensor(array) for name, array in tensors.items()}
        fill_weights(self._model, values, "the bundle")
        self._model.to(device)
        used = next(self._model.parameters()).device.type
        self.info = EngineInfo("torch", used, f"torch {used}", "fp32", threads, reason)

    def run(
        self,
        ids: Ids,
        lengths: Ids,
        *,
        contributions: bool = False,
        release_memory: bool = False,
    ) -> Output:
        """Classify; only what is asked for is computed."""
        check_batch(ids, lengths, self._config)
        try:
            output = self._run(ids, lengths, contributions=contributions)
        except RuntimeError as error:
            if isinstance(error, torch.OutOfMemoryError) or _NO_MEMORY in str(error):
                raise MemoryError("the run needed more memory than there is") from error
            raise EngineError(f"PyTorch could not run a batch: {error}") from error
        check_finite(output.logits)
        if release_memory and self.info.device == "cpu":
            trim_heap()  # there is no arena on a CPU
        return output

    def _run(self, ids: Ids, lengths: Ids, *, contributions: bool) -> Output:
        inputs = [torch.tensor(x, device=self.info.device) for x in (ids, lengths)]  # copies
        with torch.inference_mode():
            if not contributions:
                return Output(self._model(*inputs).cpu().numpy())
            logits, shares = self._model.explain(*inputs)
            return Output(logits.cpu().numpy(), shares.cpu().numpy())

    def close(self) -> None:
        """Let the network go."""
        del self._model
