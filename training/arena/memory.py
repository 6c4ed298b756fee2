"""Whether a network's training or reading fits into memory, known before it is tried."""

from __future__ import annotations

import contextlib
from pathlib import Path

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from models.classifier import Classifier

#: Largest share of the free memory that a run may take.
SHARE = 0.6
_SHORT = 256


def free_bytes() -> int:
    """Memory that can be had now: the machine's, or what is left of the control group's limit."""
    free = 1 << 62
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        free = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable")) << 10
    with contextlib.suppress(OSError, ValueError):
        group = Path("/sys/fs/cgroup")
        limit = int((group / "memory.max").read_text(encoding="ascii"))
        free = min(free, limit - int((group / "memory.current").read_text(encoding="ascii")))
    return free


def bytes_needed(model: Classifier, length: int, batch: int) -> int:
    """What a training step keeps for its backward pass, from two short documents.

    What is saved of a document is a polynomial of the second degree in its length at most.
    """
    short, twice = (_saved_bytes(model, n) for n in (_SHORT, 2 * _SHORT))
    squared = max(0.0, (twice - 2 * short) / (2 * _SHORT**2))
    linear = max(0.0, short / _SHORT - squared * _SHORT)
    return int(batch * (squared * length**2 + linear * length))


def _saved_bytes(model: Classifier, n: int) -> int:
    """Bytes that autograd keeps of one document of n tokens."""
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    with torch.enable_grad(), saved_tensors_hooks(keep, lambda tensor: tensor):
        model(torch.zeros(1, n, dtype=torch.int64), torch.tensor([n]))
    return max(0, sum(kept.values()) - weights)
