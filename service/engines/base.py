"""The contract between the service and whatever runs the network."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from models.encoders.config import NetworkConfig
from models.errors import EngineError, ShapeError

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
    label: str = field(init=False)  # short form for answers, such as `onnxruntime:cpu`

    def __post_init__(self) -> None:
        object.__setattr__(self, "label", f"{self.engine}:{self.device}")


@dataclass(frozen=True)
class Output:
    """What a run gives back: calibrated logits and, when asked for, who contributed what.

    A document's contributions, summed over its tokens and added to the head's bias, are its
    logits. Rows beyond a document's own length are zero.
    """

    logits: Floats  # (batch, labels)
    contributions: Floats | None = None  # (batch, n, labels)


class Engine(ABC):
    """Runs batches of token ids: opened by a factory, run, closed.

    `run` may be called from several threads at once. A run with one thread computes in the thread
    that calls it. `service.engines.check.check_engine` checks an implementation.
    """

    info: EngineInfo

    @abstractmethod
    def run(
        self,
        ids: Ids,
        lengths: Ids,
        *,
        contributions: bool = False,
        release_memory: bool = False,
    ) -> Output:
        """Classify documents: ids (batch, n), right-padded with anything; lengths (batch,).

        `release_memory` gives the system back, after this run, what this and earlier ones needed.
        Raises ShapeError for a batch that no network can read, MemoryError when there is not
        enough memory for the run, and EngineError for any other fault.
        """

    @abstractmethod
    def close(self) -> None:
        """Give back memory and threads; the engine is not used afterwards."""


class EngineFactory(Protocol):
    """Opens further engines of one network."""

    def open(self, *, threads: int, own_memory: bool) -> Engine:
        """An engine with so many threads a run.

        With `own_memory`, its runs never wait for memory that another engine's runs use.
        """


def check_finite(logits: Floats) -> None:
    """Refuse to answer with what is no number."""
    if not np.isfinite(logits).all():
        raise EngineError("the network gave scores that are no finite numbers")


def check_batch(ids: Ids, lengths: Ids, config: NetworkConfig) -> None:
    """Refuse what a network cannot read, before an engine fails on it in its own words."""
    if ids.dtype != np.int64 or lengths.dtype != np.int64:
        raise ShapeError(f"ids and lengths must be int64; got {ids.dtype} and {lengths.dtype}")
    if ids.ndim != 2 or lengths.shape != ids.shape[:1] or ids.size == 0:
        raise ShapeError(
            f"ids must be (batch, n) and lengths (batch,), neither of them empty; got {ids.shape} "
            f"and {lengths.shape}"
        )
    n = ids.shape[1]
    if config.max_length is not None and n > config.max_length:
        raise ShapeError(f"{config.attention} takes at most {config.max_length} tokens; got n={n}")
    shortest, longest = min(lengths.tolist()), max(lengths.tolist())
    if shortest < 1 or longest > n:
        raise ShapeError(f"lengths must be from 1 to n={n}; got {shortest} to {longest}")
    real = ids if shortest == n else ids[np.arange(n) < lengths[:, None]]
    if real.view(np.uint64).max() >= config.vocab_size:  # what is negative looks huge
        raise ShapeError(
            f"token ids must be from 0 to {config.vocab_size - 1}; got {real.min()} to {real.max()}"
        )
