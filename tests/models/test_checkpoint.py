"""Checkpoints come back as they were written, whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from models.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from models.config import ModelConfig
from models.errors import BundleError


def checkpoint(**changes: object) -> Checkpoint:
    values: dict[str, object] = {
        "name": "news-softmax",
        "task": "what a news item is about",
        "labels": ("sport", "politics", "science"),
        "config": ModelConfig(vocab_size=50, num_labels=3, attention="softmax"),
        "max_tokens": 4096,
        "tokenizer": "bpe",
        "training": {"seed": 7},
        "evaluation": {"accuracy": 0.5},
    }
    return Checkpoint.model_validate(values | changes)


def write(folder: Path, **changes: object) -> None:
    write_checkpoint(
        folder,
        checkpoint(**changes),
        write_weights=lambda path: path.write_bytes(b"weights"),
        tokenizer="{}",
        card="# A card\n",
        pictures={"confusion.png": b"picture"},
    )


def test_what_is_written_is_read(tmp_path: Path) -> None:
    write(tmp_path / "run")
    assert read_checkpoint(tmp_path / "run") == checkpoint()
    assert (tmp_path / "run" / "confusion.png").read_bytes() == b"picture"
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_attention_parameters_survive(tmp_path: Path) -> None:
    config = ModelConfig(
        vocab_size=50, num_labels=3, attention="linformer", attention_params={"k": [64, 32]}
    )
    write(tmp_path / "run", config=config)
    assert read_checkpoint(tmp_path / "run").config == config


def test_a_new_checkpoint_replaces_an_old_one(tmp_path: Path) -> None:
    write(tmp_path / "run")
    write(tmp_path / "run", training={"seed": 8})
    assert read_checkpoint(tmp_path / "run").training == {"seed": 8}


def test_a_failed_write_leaves_the_old_one(tmp_path: Path) -> None:
    write(tmp_path / "run")

    def fail(path: Path) -> None:
        path.write_bytes(b"half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_checkpoint(
            tmp_path / "run", checkpoint(), write_weights=fail, tokenizer="{}", card=""
        )
    assert (tmp_path / "run" / "weights.safetensors").read_bytes() == b"weights"
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_folder_of_something_else_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(BundleError, match=r"holds no checkpoint\.json"):
        write(tmp_path)
    assert (tmp_path / "thesis.txt").exists()


@pytest.mark.parametrize("name", ["../x.png", "a/b.png", "run.sh", ".png"])
def test_a_picture_stays_in_the_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(BundleError, match="PNG"):
        write_checkpoint(
            tmp_path / "run",
            checkpoint(),
            write_weights=lambda path: path.write_bytes(b""),
            tokenizer="{}",
            card="",
            pictures={name: b""},
        )
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": ("one", "two")}, "2 labels, but the head has 3"),
        ({"labels": ("one", "two", "one")}, "named twice"),
        ({"labels": ("one", "two", "")}, "at least 1 character"),
        ({"name": "../elsewhere"}, "should match pattern"),
        ({"max_tokens": 0}, "greater than or equal to 1"),
        ({"tokenizer": "bytes"}, "'bpe', 'words' or 'custom'"),
        ({"evaluation": {"when": object()}}, "not plain JSON"),
        ({"evaluation": {"loss": float("nan")}}, "not JSON compliant"),
        (
            {"config": ModelConfig(vocab_size=50, num_labels=3, attention="linformer"),
             "max_tokens": 4097},
            "the attention takes 4096",
        ),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        checkpoint(**change)


@pytest.mark.parametrize("name", ["weights.safetensors", "tokenizer.json", "card.md"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    write(tmp_path / "run")
    (tmp_path / "run" / name).unlink()
    with pytest.raises(BundleError, match=name):
        read_checkpoint(tmp_path / "run")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, "has format 2; .* install a newer longdoc"),
        ({"format": "1"}, "format: Input should be a valid integer"),
        ({"max_tokens": "10"}, "max_tokens: Input should be a valid integer"),
        ({"surprise": 1}, "surprise: Extra inputs are not permitted"),
        ({"config": {"vocab_size": 5}}, "config: .* lacks num_labels, attention"),
    ],
)
def test_a_wrong_description_is_explained(
    tmp_path: Path, change: dict[str, object], message: str
) -> None:
    write(tmp_path / "run")
    path = tmp_path / "run" / "checkpoint.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(BundleError, match=message):
        read_checkpoint(tmp_path / "run")


def test_other_folders_are_no_checkpoints(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="is not a checkpoint"):
        read_checkpoint(tmp_path)
