"""Writes an encoder: a checkpoint where it has labels, else something to train from."""

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


def write_import(found: Found, model: EncoderClassifier, target: Path, name: str) -> Path:
    """Write what was imported; return the path of its description."""
    findings = {"found": found.found, "ignored": found.ignored, "notes": found.notes}
    source = {
        "folder": found.folder.name,
        "weights": {p.name: sha256_of(p) for p in sorted(found.folder.glob("*.safetensors"))},
        **findings,
    }
    task = f"The labels of {found.folder.name}, imported"
    description = describe(model, name, found.labels, task, source)
    return write_encoder(
        target, description, model, found.tokenizer, _card(found, name), found.folder
    )


def describe(
    model: EncoderClassifier, name: str, labels: tuple[str, ...], task: str, source: dict[str, Any]
) -> Checkpoint | Encoder:
    """What is said of a network that has not been evaluated."""
    config = model.config
    if not labels:
        return Encoder(name=name, config=config, max_tokens=config.max_length, source=source)
    return Checkpoint(
        name=name,
        task=task,
        labels=labels,
        config=config,
        max_tokens=config.max_length,
        tokenizer="custom",
        training={"imported": source},
        evaluation={},
    )


def write_encoder(
    target: Path,
    description: Checkpoint | Encoder,
    model: EncoderClassifier,
    tokenizer: str,
    card: str,
    notices: Path | None,
) -> Path:
    """Write the folder, whole or not at all, in float32; return the path of its description.

    `notices` is the folder whose LICENSE and NOTICE go with it.
    """
    marker = CHECKPOINT if isinstance(description, Checkpoint) else ENCODER
    if target.exists() and not target.is_dir():
        raise CheckpointError(f"{target} is a file; name another folder with --out")
    with storing(target), staged_folder(target, marker=_marker(target, marker)) as staged:
        tensors = {key: value.contiguous() for key, value in model.state_dict().items()}
        save_file(tensors, staged / WEIGHTS)
        (staged / WEIGHTS).chmod(0o644)  # the library hides it from all but its owner
        (staged / TOKENIZER).write_text(tokenizer, encoding="utf-8")
        (staged / CARD).write_text(card, encoding="utf-8")
        for file in NOTICES:
            if notices is not None and (notices / file).is_file():
                shutil.copyfile(notices / file, staged / file)
        text = description.model_dump_json(indent=2) + "\n"
        (staged / marker).write_text(text, encoding="utf-8")
    return target / marker


def _marker(target: Path, wanted: str) -> str:
    """An encoder may take the place of one of the other kind."""
    other = ENCODER if wanted == CHECKPOINT else CHECKPOINT
    return other if (target / other).is_file() else wanted


def _card(found: Found, name: str) -> str:
    lines = [f"# {name}", "", f"Imported from `{found.folder.name}`.", ""]
    lines += [f"- {line}" for line in found.found]
    for title, entries in (("Left out", found.ignored), ("To know", found.notes)):
        lines += ["", f"## {title}", "", *(f"- {entry}" for entry in entries)] if entries else []
    return "\n".join(lines) + "\n"
