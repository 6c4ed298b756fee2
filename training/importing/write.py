"""Writes an imported network: a checkpoint where it has labels, else an encoder to train from."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from models.checkpoint import CHECKPOINT, Checkpoint
from models.description import CARD, TOKENIZER, WEIGHTS
from models.encoders.checkpoint import ENCODER, NOTICES, Encoder
from models.encoders.network import EncoderClassifier
from models.files import sha256_of, staged_folder
from training.errors import CheckpointError
from training.importing.folder import Found
from training.storage import storing


def write(found: Found, model: EncoderClassifier, target: Path, name: str) -> Path:
    """Write the folder, whole or not at all; return the path of its description."""
    config = found.config
    source = {
        "folder": found.folder.name,
        "weights": {p.name: sha256_of(p) for p in sorted(found.folder.glob("*.safetensors"))},
        **_findings(found),
    }
    description: Checkpoint | Encoder
    if found.labels:
        marker = CHECKPOINT
        description = Checkpoint(
            name=name,
            task=f"The labels of {found.folder.name}, imported",
            labels=found.labels,
            config=config,
            max_tokens=config.max_length,
            tokenizer="custom",
            training={"imported": source},
            evaluation={},
        )
    else:
        marker = ENCODER
        description = Encoder(name=name, config=config, max_tokens=config.max_length, source=source)
    _replaceable(target)
    with storing(target), staged_folder(target, marker=_marker(target, marker)) as staged:
        tensors = {key: value.contiguous() for key, value in model.state_dict().items()}
        save_file(tensors, staged / WEIGHTS)
        (staged / WEIGHTS).chmod(0o644)  # the library hides it from all but its owner
        (staged / TOKENIZER).write_text(found.tokenizer, encoding="utf-8")
        (staged / CARD).write_text(_card(found, name), encoding="utf-8")
        for file in NOTICES:
            if (found.folder / file).is_file():
                shutil.copyfile(found.folder / file, staged / file)
        text = description.model_dump_json(indent=2) + "\n"
        (staged / marker).write_text(text, encoding="utf-8")
    return target / marker


def _replaceable(target: Path) -> None:
    if target.exists() and not target.is_dir():
        raise CheckpointError(f"{target} is a file; name another folder with --out")


def _marker(target: Path, wanted: str) -> str:
    """An import may replace an import of either kind."""
    other = ENCODER if wanted == CHECKPOINT else CHECKPOINT
    return other if (target / other).is_file() else wanted


def _findings(found: Found) -> dict[str, Any]:
    return {"found": found.found, "ignored": found.ignored, "notes": found.notes}


def _card(found: Found, name: str) -> str:
    lines = [f"# {name}", "", f"Imported from `{found.folder.name}`.", ""]
    lines += [f"- {line}" for line in found.found]
    for title, entries in (("Left out", found.ignored), ("To know", found.notes)):
        lines += ["", f"## {title}", "", *(f"- {entry}" for entry in entries)] if entries else []
    return "\n".join(lines) + "\n"
