"""The contract between the service and whatever runs the network."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class EngineInfo:
    """What in truth runs the network, read back from the engine itself.

    engine     onnxruntime, torch or fake
    device     cpu or cuda
    provider   the engine's own name for what computes, such as CPUExecutionProvider
    precision  fp32, fp16 or int8
    threads    threads that one run uses
    reason     why this engine and device were chosen, in a sentence
    """

    engine: str
    device: str
    provider: str
    precision: str
    threads: int
    reason: str

    @property
    def label(self) -> str:
        """Short form for responses, such as `onnxruntime:cpu`."""
        return f"{self.engine}:{self.device}"


@dataclass(frozen=True)
class Output:
    """What a run gives back: calibrated logits and, when asked for, who contributed what.

    A document's contributions, summed over its tokens and added to the head's bias, are its
    logits. Rows beyond a document's own length are zero.
    """

    logits: Floats  # (batch, labels)
    contributions: Floats | None = None  # (batch, n, labels)


class Engine(ABC):
    """Runs batches of token ids. `run` may be called from several threads at once."""

    info: EngineInfo

    @abstractmethod
    def run(self, ids: Ids, lengths: Ids, *, contributions: bool = False) -> Output:
        """Classify documents: ids (batch, n), right-padded with anything; lengths (batch,)."""

    @abstractmethod
    def close(self) -> None:
        """Give back memory and threads; the engine is not used afterwards."""
