"""A bundle is believed only when every byte of it is what the manifest says."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest

from models.bundle import Graph, find_bundles, load_bundle, seal_bundle
from models.checkpoint import Checkpoint
from models.config import ModelConfig
from models.errors import BundleError

FILES = {
    "model.onnx": b"a graph",
    "weights.safetensors": b"weights",
    "tokenizer.json": b"{}",
    "card.md": b"# A card\n",
    "certificate.fp32.json": b'{"probability": 1e-6}',
}
CHECKPOINT = Checkpoint(
    name="news-softmax",
    task="what a news item is about",
    labels=("sport", "politics"),
    config=ModelConfig(vocab_size=50, num_labels=2, attention="softmax"),
    max_tokens=4096,
    tokenizer="bpe",
    training={"seed": 7},
    evaluation={"accuracy": 0.5},
)
VALID = Graph(
    file="model.onnx", certificate="certificate.fp32.json", valid=True, reason="within bounds"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "news-softmax"
    path.mkdir()
    for name, content in FILES.items():
        (path / name).write_bytes(content)
    seal_bundle(path, CHECKPOINT, version="1", provenance={"training": {}}, graphs={"fp32": VALID})
    return path


def rewrite(folder: Path, **changes: object) -> None:
    """Change the manifest and seal it again, as somebody with bad intentions would."""
    manifest = json.loads((folder / "manifest.json").read_text()) | changes
    text = json.dumps(manifest).encode()
    (folder / "manifest.json").write_bytes(text)
    digest = hashlib.sha256(text).hexdigest()
    (folder / "manifest.sha256").write_text(f"{digest}  manifest.json\n")


def test_what_was_sealed_is_loaded(folder: Path) -> None:
    bundle = load_bundle(folder)
    assert bundle.manifest.name == "news-softmax"
    assert bundle.manifest.labels == ("sport", "politics")
    assert bundle.manifest.config == CHECKPOINT.config
    assert bundle.manifest.graphs["fp32"] == VALID
    assert set(bundle.manifest.files) == set(FILES)
    assert bundle.digest == hashlib.sha256((folder / "manifest.json").read_bytes()).hexdigest()
    assert bundle.file("model.onnx").read_bytes() == b"a graph"
    assert bundle.certificate("fp32") == {"probability": 1e-6}


def test_one_changed_byte_anywhere_is_found_and_named(folder: Path) -> None:
    for path in sorted(folder.iterdir()):
        original = path.read_bytes()
        named = path.stem if path.stem == "manifest" else path.name
        for position in range(len(original)):
            changed = bytearray(original)
            changed[position] ^= 1 << (position % 8)
            path.write_bytes(changed)
            with pytest.raises(BundleError, match=named):
                load_bundle(folder)
        for wrong in (original + b"\n", original[:-1], b""):
            path.write_bytes(wrong)
            with pytest.raises(BundleError, match=named):
                load_bundle(folder)
        path.write_bytes(original)
    load_bundle(folder)


@pytest.mark.parametrize("name", [*FILES, "manifest.sha256"])
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(BundleError, match=f"{name} is missing"):
        load_bundle(folder)


@pytest.mark.parametrize(
    "name", ["../secret", "/etc/passwd", "a/b", "..", "a\\b", "", "manifest.json"]
)
def test_a_path_that_leaves_the_folder_is_refused(folder: Path, name: str) -> None:
    files = json.loads((folder / "manifest.json").read_text())["files"]
    rewrite(folder, files=files | {name: {"sha256": "0" * 64, "bytes": 0}})
    with pytest.raises(BundleError, match="could leave the folder"):
        load_bundle(folder)


def test_a_link_that_leaves_the_folder_is_refused(folder: Path) -> None:
    outside = folder.parent / "outside"
    outside.write_bytes(FILES["card.md"])
    (folder / "card.md").unlink()
    (folder / "card.md").symlink_to(outside)
    with pytest.raises(BundleError, match=r"card\.md leads out of its folder"):
        load_bundle(folder)


def test_a_link_to_the_whole_bundle_is_fine(folder: Path) -> None:
    link = folder.parent / "current"
    link.symlink_to(folder)
    assert load_bundle(link).digest == load_bundle(folder).digest


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_does_not_hang_the_loader(folder: Path) -> None:
    (folder / "card.md").unlink()
    os.mkfifo(folder / "card.md")
    with pytest.raises(BundleError, match=r"card\.md is missing or is not a regular file"):
        load_bundle(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": 2}, "install a newer longdoc"),
        ({"labels": ["sport"]}, "1 labels, but the head has 2"),
        ({"labels": "ab"}, "labels: Input should be a valid array"),
        ({"version": "latest"}, "version: "),
        ({"graphs": {"fp64": VALID.model_dump()}}, r"graphs\.fp64"),
        ({"graphs": {"fp32": VALID.model_dump() | {"file": None}}}, "valid but has no file"),
        ({"graphs": {"fp32": VALID.model_dump() | {"file": "x.onnx"}}}, r"files lacks x\.onnx"),
        ({"files": {}}, "files lacks card.md"),
        ({"files": {"a": {"sha256": "xyz", "bytes": 1}}}, r"files\.a\.sha256"),
    ],
)
def test_a_manifest_that_makes_no_sense_is_explained(
    folder: Path, changes: dict[str, object], message: str
) -> None:
    rewrite(folder, **changes)
    with pytest.raises(BundleError, match=message):
        load_bundle(folder)


def test_a_huge_manifest_is_refused_before_it_is_read(folder: Path) -> None:
    with (folder / "manifest.json").open("ab") as file:
        file.truncate(1 << 33)
    with pytest.raises(BundleError, match="at most"):
        load_bundle(folder)


def test_only_files_of_the_manifest_are_handed_out(folder: Path) -> None:
    (folder / "extra.txt").write_text("not sealed")
    bundle = load_bundle(folder)
    for name in ("extra.txt", "../news-softmax/card.md"):
        with pytest.raises(BundleError, match="names no file"):
            bundle.file(name)
    with pytest.raises(BundleError, match="was not exported as int8; it has: fp32"):
        bundle.certificate("int8")


def test_bundles_are_found_by_their_manifest(folder: Path) -> None:
    root = folder.parent
    (root / "notes").mkdir()
    shutil.copytree(folder, root / "another")
    assert [path.name for path in find_bundles(root)] == ["another", "news-softmax"]
    assert find_bundles(root / "nowhere") == []
    with pytest.raises(BundleError, match="is not a bundle"):
        load_bundle(root / "notes")
