"""A run's state on disk: tensors as safetensors, the rest as JSON in its header."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from training.storage import written_beside


def write_state(
    path: Path, key: str, progress: Mapping[str, Any], tensors: Mapping[str, Tensor]
) -> None:
    """Write whole or not at all."""
    plain = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    header = {"key": key, "progress": json.dumps(dict(progress))}
    with written_beside(path) as beside:
        save_file(plain, beside, metadata=header)


def read_state(path: Path, key: str) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
    """The state of this very run; None when there is none that can be read."""
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            progress: dict[str, Any] = json.loads(header["progress"])
    except (SafetensorError, OSError, KeyError, json.JSONDecodeError):
        return None
    return (progress, tensors) if header.get("key") == key else None
