"""Runs a bundle's network in PyTorch: for bundles without a valid graph, or on request."""

from __future__ import annotations

from pathlib import Path

import torch

from models.encoders.config import NetworkConfig
from models.networks import build_network
from models.weights import load_weights
from service.engines.base import Engine, EngineInfo, Ids, Output, check_batch
from service.engines.heap import trim_heap


def cuda_works() -> bool:
    """Whether PyTorch finds a CUDA device that it can use."""
    return torch.cuda.is_available()


class TorchEngine(Engine):
    """The network itself, with the bundle's weights. PyTorch's threads are the whole process's."""

    def __init__(
        self, weights: Path, config: NetworkConfig, *, device: str, threads: int, reason: str
    ) -> None:
        torch.set_num_threads(threads)
        self._config = config
        self._model = build_network(config).eval()
        load_weights(self._model, weights)
        self._model.to(device)
        used = next(self._model.parameters()).device.type
        self.info = EngineInfo("torch", used, f"torch {used}", "fp32", threads, reason)

    def run(self, ids: Ids, lengths: Ids, *, contributions: bool = False) -> Output:
        """Classify; only what is asked for is computed."""
        check_batch(ids, lengths, self._config)
        inputs = [torch.from_numpy(x).to(self.info.device) for x in (ids, lengths)]
        with torch.inference_mode():
            if not contributions:
                return Output(self._model(*inputs).cpu().numpy())
            logits, shares = self._model.explain(*inputs)
            return Output(logits.cpu().numpy(), shares.cpu().numpy())

    def shrink(self) -> None:
        """Give back what is free, on a CPU, where there is no arena."""
        if self.info.device == "cpu":
            trim_heap()

    def close(self) -> None:
        """Let the network go."""
        del self._model
