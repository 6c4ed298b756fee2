"""What training writes and export reads: a folder with a network and how it came to be.

checkpoint.json       what the network is, how it was trained, how well it does
weights.safetensors   its weights
tokenizer.json        its tokenizer
card.md               the same for people to read
*.png                 pictures of the card, if any

Free of torch: the caller writes and reads the weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Literal

from models.description import CARD, TOKENIZER, WEIGHTS, Description, JsonObject, parse
from models.errors import BundleError
from models.files import inner_file, is_plain_name, staged_folder

FORMAT: Final = 1
CHECKPOINT = "checkpoint.json"


class Checkpoint(Description):
    """A trained network. `training` is its provenance: command, data, seed, versions, time."""

    format: Literal[1] = FORMAT
    training: JsonObject


def write_checkpoint(
    folder: Path,
    checkpoint: Checkpoint,
    *,
    write_weights: Callable[[Path], object],
    tokenizer: str,
    card: str,
    pictures: Mapping[str, bytes] | None = None,
    notices: Mapping[str, bytes] | None = None,
) -> None:
    """Write a checkpoint beside its place, then move it there, replacing an earlier one.

    `write_weights` is given the path to write; `tokenizer` is the text of tokenizer.json;
    `pictures` holds PNG files by name, `notices` the licence texts of what it was made from.
    """
    with staged_folder(folder, marker=CHECKPOINT) as staged:
        write_weights(staged / WEIGHTS)
        (staged / TOKENIZER).write_text(tokenizer, encoding="utf-8")
        (staged / CARD).write_text(card, encoding="utf-8")
        for name, notice in (notices or {}).items():
            (staged / name).write_bytes(notice)
        for name, picture in (pictures or {}).items():
            if not (is_plain_name(name) and name.endswith(".png")):
                raise BundleError(f"{name!r} is not a plain name of a PNG file")
            (staged / name).write_bytes(picture)
        text = checkpoint.model_dump_json(indent=2) + "\n"
        (staged / CHECKPOINT).write_text(text, encoding="utf-8")


def read_checkpoint(folder: Path) -> Checkpoint:
    """Read and check a checkpoint's description; all its files must be there."""
    if not (folder / CHECKPOINT).is_file():
        raise BundleError(f"{folder} is not a checkpoint: it holds no {CHECKPOINT}")
    for name in (WEIGHTS, TOKENIZER, CARD):
        inner_file(folder, name)
    return parse(Checkpoint, folder, CHECKPOINT, FORMAT)
