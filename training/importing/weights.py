"""The safetensors files of a folder: what they hold is known before any of it is read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from models.errors import BundleError
from models.files import inner_file, read_text
from training.errors import CheckpointError

_SINGLE, _INDEX = "model.safetensors", "model.safetensors.index.json"
_MAX_INDEX_BYTES = 64 << 20
_FLOATS = ("F64", "F32", "F16", "BF16")
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.h5", "*.msgpack")


@dataclass(frozen=True)
class Stored:
    """A tensor in a file, not read yet."""

    file: Any
    name: str
    shape: tuple[int, ...]
    dtype: str


class StoredWeights:
    """All tensors of a folder by name, with old names of normalisations made new.

    A context: files are mapped while it is open.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._stack = ExitStack()
        self.tensors: dict[str, Stored] = {}

    def __enter__(self) -> Self:
        try:
            for name, expected in _files(self.folder).items():
                self._open(name, expected)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self._stack.close()

    def _open(self, name: str, expected: set[str] | None) -> None:
        try:
            path = inner_file(self.folder, name)
            file = self._stack.enter_context(safe_open(path, framework="pt"))
            keys = list(file.keys())
        except BundleError as error:
            raise CheckpointError(f"{error}: download this part of the weights again") from None
        except (SafetensorError, OSError) as error:
            raise CheckpointError(
                f"{self.folder / name} is damaged ({error}); download it again"
            ) from None
        if expected is not None and not expected <= set(keys):
            lost = sorted(expected - set(keys))[0]
            raise CheckpointError(
                f"{self.folder / name} lacks {lost!r}, which {_INDEX} says it holds; download the "
                "folder again"
            )
        for key in keys:
            part = file.get_slice(key)
            stored = Stored(file, key, tuple(part.get_shape()), str(part.get_dtype()))
            self.tensors[_modern(key)] = stored

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Every tensor's shape."""
        return {name: stored.shape for name, stored in self.tensors.items()}

    def read(self, name: str) -> Tensor:
        """One tensor in float32; refused when it holds what is no number."""
        stored = self.tensors[name]
        if stored.dtype not in _FLOATS:
            raise CheckpointError(
                f"{name} is stored as {stored.dtype}: these weights are quantised; import the "
                "checkpoint they were made from"
            )
        tensor: Tensor = stored.file.get_tensor(stored.name).to(torch.float32)
        if not bool(torch.isfinite(tensor).all()):
            raise CheckpointError(
                f"{name} holds values that are no finite numbers; this checkpoint is broken, take "
                "an earlier one"
            )
        return tensor


def _files(folder: Path) -> dict[str, set[str] | None]:
    """The weight files, each with the tensors it must hold where an index says so."""
    if (folder / _SINGLE).is_file():
        return {_SINGLE: None}
    if (folder / _INDEX).is_file():
        return _indexed(folder)
    pickles = sorted(path.name for pattern in _PICKLES for path in folder.glob(pattern))
    if pickles:
        raise CheckpointError(
            f"{folder} holds its weights as {pickles[0]} only, a format that can run code when it "
            "is opened. Convert it where you trust it: AutoModel.from_pretrained(folder)."
            "save_pretrained(folder) writes model.safetensors"
        )
    raise CheckpointError(f"{folder} holds no {_SINGLE}; download the weights, too")


def _indexed(folder: Path) -> dict[str, set[str] | None]:
    try:
        weight_map = json.loads(read_text(folder, _INDEX, _MAX_INDEX_BYTES))["weight_map"]
        files: dict[str, set[str] | None] = {}
        for key, name in weight_map.items():
            found = files.setdefault(str(name), set())
            assert found is not None  # noqa: S101 - made a set just now
            found.add(str(key))
    except (json.JSONDecodeError, KeyError, AttributeError, TypeError, BundleError) as error:
        raise CheckpointError(
            f"{folder / _INDEX} is not an index of weights ({error}); download it again"
        ) from None
    missing = sorted(name for name in files if not (folder / name).is_file())
    if missing:
        raise CheckpointError(
            f"{folder} lacks {', '.join(missing)} of {len(files)} weight files; download them, too"
        )
    return files


def _modern(name: str) -> str:
    """Old files call a normalisation's weight gamma and its bias beta."""
    for old, new in ((".gamma", ".weight"), (".beta", ".bias")):
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name
