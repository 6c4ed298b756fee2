"""What a run will take, said before it starts: time from two measured steps, memory by sum."""

from __future__ import annotations

import resource
import time

import numpy as np
import torch

from models.encoders.config import EncoderConfig
from training.errors import RunError
from training.finetuning.loop import Loop
from training.memory import available_memory

_STATE_COPIES = 6  # weights, gradients, two moments, the best weights, and one while saving
_BASE = 1 << 30  # Python, PyTorch and the data


def memory_needed(
    config: EncoderConfig, parameters: int, batch_tokens: int, *, frugal: bool
) -> int:
    """Bytes at the peak of a step, by what a backward pass keeps."""
    block = 10 * config.width + (4 if config.gated else 3) * config.hidden
    quadratic = not config.linear and config.attention != "softmax"
    scores = 2 * config.heads * config.positions if quadratic else 0
    kept = (
        config.width * config.layers + block + scores
        if frugal
        else (config.layers * (block + scores))
    )
    return _BASE + 4 * (_STATE_COPIES * parameters + batch_tokens * (kept + 4 * config.width))


def choose_frugal(config: EncoderConfig, parameters: int, batch_tokens: int) -> tuple[bool, int]:
    """Whether activations must be computed again to fit, and the memory it takes then."""
    free = available_memory()
    plain = memory_needed(config, parameters, batch_tokens, frugal=False)
    if plain <= free:
        return False, plain
    small = memory_needed(config, parameters, batch_tokens, frugal=True)
    if small > free:
        raise RunError(
            f"a step takes about {small / 2**30:.1f} GB of memory and {free / 2**30:.1f} GB are "
            "free; take smaller batches (--batch-tokens) or a smaller checkpoint"
        )
    return True, small


def measure_speed(loop: Loop) -> float:
    """Tokens a second of forward and backward, over a few batches from the middle of an epoch.

    Gradients are dropped: the run itself begins with its first batch and untouched weights.
    """
    batches = loop.batches_of_epoch(0)
    chosen = [batches[int(i)] for i in np.linspace(0, len(batches) - 1, min(4, len(batches)))]
    loop.model.train()
    read, taken = 0, 0.0
    for number, batch in enumerate([chosen[0], *chosen]):  # the first compiles kernels
        started = time.monotonic()
        loop.gradients(batch)
        if number:
            taken += time.monotonic() - started
            read += int((batch.windows[:, 2] - batch.windows[:, 1]).sum())
    loop.optimizer.zero_grad()
    return read / max(taken, 1e-9)


def peak_memory() -> int:
    """The most memory that this process has had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def bf16_pays() -> bool:
    """Whether the processor multiplies matrices in bfloat16 faster than in float32."""
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())
