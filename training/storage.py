"""Files that appear whole or not at all, and a cache of what several runs share."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError

from models.files import written_whole
from training.errors import StorageError

Array = NDArray[Any]


@contextmanager
def storing(path: Path) -> Iterator[None]:
    """Turn a full disk, a missing right and the like into a StorageError that names the path."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        raise StorageError(
            f"cannot write {path}: {error}; free some space or name another folder"
        ) from None


@contextmanager
def written_beside(path: Path) -> Iterator[Path]:
    """A path to write to, which takes the file's name when the block ends well."""
    with storing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(path) as partial:
            yield partial


def save_array(path: Path, array: Array) -> None:
    """Write a .npy file, whole or not at all."""
    with written_beside(path) as beside, beside.open("wb") as file:
        np.save(file, array, allow_pickle=False)


def load_array(path: Path) -> Array:
    """Map a .npy file into memory, read only."""
    array: Array = np.load(path, mmap_mode="r", allow_pickle=False)
    return array


def save_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON object, whole or not at all."""
    with written_beside(path) as beside:
        beside.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def load_json(path: Path) -> dict[str, Any]:
    """Read a JSON object that `save_json` wrote."""
    value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return value


def digest_of(*parts: object) -> str:
    """A short name for anything that JSON can hold: equal parts, equal name."""
    text = json.dumps(parts, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class Cache:
    """What runs on the same data share, under names that hold the digest of their inputs.

    An entry is written once and never changed: to change how something is made, change the
    parts of its key.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def array(self, kind: str, key: tuple[object, ...], make: Callable[[], Array]) -> Array:
        """The array of that kind and key, made when it is not there yet."""
        path = self.folder / f"{kind}-{digest_of(*key)}.npy"
        if not path.exists():
            save_array(path, make())
        return load_array(path)

    def json(
        self, kind: str, key: tuple[object, ...], make: Callable[[], Mapping[str, Any]]
    ) -> dict[str, Any]:
        """The object of that kind and key, made when it is not there yet."""
        path = self.folder / f"{kind}-{digest_of(*key)}.json"
        if not path.exists():
            save_json(path, make())
        return load_json(path)
