"""Weights on disk: safetensors only, nothing that runs when it is loaded.

Matrices are stored as float16, which halves a bundle. `round_weights` brings a model to
exactly what will be stored, so that what is evaluated is what is shipped.
"""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn

from models.errors import BundleError
from models.files import written_whole

#: Tensors with at least this many entries are stored as float16.
LARGE = 10_000


def round_weights(model: nn.Module) -> None:
    """Round the matrices in place to what float16 can hold."""
    with torch.no_grad():
        for tensor in model.state_dict().values():
            if _stored_short(tensor):
                tensor.copy_(tensor.half())


def save_weights(model: nn.Module, path: Path) -> None:
    """Write all weights and buffers; the file appears whole or not at all."""
    tensors = {
        name: (tensor.half() if _stored_short(tensor) else tensor).contiguous().cpu()
        for name, tensor in model.state_dict().items()
    }
    with written_whole(path) as partial:
        partial.write_bytes(save(tensors))  # `save_file` would hide it from all but its owner


def load_weights(model: nn.Module, path: Path) -> None:
    """Fill the model; every tensor must be there, in its shape, and no other."""
    try:
        tensors = load_file(path)
    except (SafetensorError, OSError) as error:
        raise BundleError(f"cannot read weights from {path.name}: {error}") from None
    wanted = model.state_dict()
    missing, extra = sorted(set(wanted) - set(tensors)), sorted(set(tensors) - set(wanted))
    if missing or extra:
        raise BundleError(
            f"{path.name} does not fit this model: lacks {missing or 'nothing'}, "
            f"has {extra or 'nothing'} too much"
        )
    for name, tensor in tensors.items():
        if tensor.shape != wanted[name].shape:
            raise BundleError(
                f"{path.name}: {name} is {tuple(tensor.shape)}, this model wants "
                f"{tuple(wanted[name].shape)}"
            )
        with torch.no_grad():
            wanted[name].copy_(tensor)


def _stored_short(tensor: Tensor) -> bool:
    return tensor.dtype == torch.float32 and tensor.numel() >= LARGE
