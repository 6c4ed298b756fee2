"""Weights on disk: safetensors only, nothing that runs when it is loaded.

Matrices are stored as float16, which halves a bundle. `round_weights` brings a model to
exactly what will be stored, so that what is evaluated is what is shipped.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn

from models.errors import BundleError
from models.files import written_whole

#: Tensors with at least this many entries are stored as float16.
LARGE = 10_000

_TABLES = "embedding."


def round_weights(model: nn.Module) -> None:
    """Round the matrices in place to what float16 can hold."""
    with torch.no_grad():
        for tensor in model.state_dict().values():
            if _stored_short(tensor):
                tensor.copy_(tensor.half())


def save_weights(model: nn.Module, path: Path, *, tables: Path | None = None) -> None:
    """Write all weights and buffers; a file appears whole or not at all.

    With `tables`, the vectors of tokens and pairs go into that file.
    """
    stored = {
        name: (tensor.half() if _stored_short(tensor) else tensor).contiguous().cpu()
        for name, tensor in model.state_dict().items()
    }
    if tables is not None:
        apart = {name for name in stored if name.startswith(_TABLES)}
        _write(tables, {name: stored.pop(name) for name in sorted(apart)})
    _write(path, stored)


def load_weights(model: nn.Module, *paths: Path) -> None:
    """Fill the model; every tensor must be in one of the files, in its shape, and no other."""
    tensors: dict[str, Tensor] = {}
    name = ", ".join(path.name for path in paths)
    try:
        for path in paths:
            tensors |= load_file(path)
    except (SafetensorError, OSError) as error:
        raise BundleError(f"cannot read weights from {name}: {error}") from None
    fill_weights(model, tensors, name)


def fill_weights(model: nn.Module, tensors: Mapping[str, Tensor], name: str) -> None:
    """Fill the model with these tensors; `name` is where they are from."""
    wanted = model.state_dict()
    missing, extra = sorted(set(wanted) - set(tensors)), sorted(set(tensors) - set(wanted))
    if missing or extra:
        raise BundleError(
            f"{name} does not fit this model: lacks {missing or 'nothing'}, "
            f"has {extra or 'nothing'} too much"
        )
    for tensor, values in tensors.items():
        if values.shape != wanted[tensor].shape:
            raise BundleError(
                f"{name}: {tensor} is {tuple(values.shape)}, this model wants "
                f"{tuple(wanted[tensor].shape)}"
            )
        with torch.no_grad():
            wanted[tensor].copy_(values)


def _write(path: Path, tensors: dict[str, Tensor]) -> None:
    with written_whole(path) as partial:
        partial.write_bytes(save(tensors))  # `save_file` would hide it from all but its owner


def _stored_short(tensor: Tensor) -> bool:
    return tensor.dtype == torch.float32 and tensor.numel() >= LARGE
