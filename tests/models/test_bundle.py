"""A bundle is believed only when every byte of it is what the manifest says."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from models.bundle import find_bundles, load_bundle, share_files
from models.errors import BundleError
from tests.support.crafted_bundle import CHECKPOINT, GRAPH, LABELS, craft, tensors

FILES = (
    "model.onnx",
    "weights.safetensors",
    "tables.safetensors",
    "tokenizer.json",
    "reference.json",
    "card.md",
    "certificate.fp32.json",
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return craft(tmp_path / "news-softmax")


def rewrite(folder: Path, **changes: object) -> None:
    """Change the manifest and seal it again, as somebody with bad intentions would."""
    manifest = json.loads((folder / "manifest.json").read_text()) | changes
    text = json.dumps(manifest).encode()
    (folder / "manifest.json").write_bytes(text)
    digest = hashlib.sha256(text).hexdigest()
    (folder / "manifest.sha256").write_text(f"{digest}  manifest.json\n")


def test_what_was_sealed_is_loaded(folder: Path) -> None:
    bundle = load_bundle(folder)
    assert bundle.manifest.name == "crafted-linear"
    assert bundle.manifest.labels == LABELS
    assert bundle.manifest.config == CHECKPOINT.config
    assert bundle.manifest.graphs["fp32"] == GRAPH
    assert set(bundle.manifest.files) == set(FILES)
    assert bundle.digest == hashlib.sha256((folder / "manifest.json").read_bytes()).hexdigest()
    assert bundle.read("model.onnx") == (folder / "model.onnx").read_bytes()
    assert bundle.certificate("fp32")["valid"] is True
    found = bundle.tensors()
    assert found.keys() == tensors().keys()
    for name, values in tensors().items():
        np.testing.assert_array_equal(found[name], values)
    assert bundle.tokenizer().encode("rain and salt").ids == [1, 0, 4]
    assert bundle.reference().documents[0].tokens == 8


@pytest.mark.slow
def test_one_changed_byte_anywhere_is_found_and_named(folder: Path) -> None:
    for path in sorted(folder.iterdir()):
        original = path.read_bytes()
        named = path.stem if path.stem == "manifest" else path.name
        for position in range(0, len(original), 1 + len(original) // 400):
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
    outside.write_bytes((folder / "card.md").read_bytes())
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
        ({"format": 3}, "install a newer longdoc"),
        ({"format": 1}, "export its checkpoint again"),
        ({"labels": ["sport"]}, "1 labels, but the head has 3"),
        ({"labels": "ab"}, "labels: Input should be a valid array"),
        ({"version": "latest"}, "version: "),
        ({"graphs": {"fp64": GRAPH.model_dump()}}, r"graphs\.fp64"),
        ({"graphs": {"fp32": GRAPH.model_dump() | {"file": None}}}, "valid but has no file"),
        ({"graphs": {"fp32": GRAPH.model_dump() | {"file": "x.onnx"}}}, r"files lacks x\.onnx"),
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


def test_what_bundles_share_lies_once_beside_them(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    alone = load_bundle(folder).tensors()
    for path in (folder, other):
        share_files(path)
        share_files(path)  # a second time changes nothing
    shared = sorted(path.name for path in (tmp_path / "shared").iterdir())
    assert len(shared) == 2
    assert not (folder / "tokenizer.json").exists()
    for path in (folder, other):
        bundle = load_bundle(path)
        assert bundle.file("tokenizer.json").parent.name == "shared"
        assert bundle.tensors().keys() == alone.keys()
        assert bundle.tokenizer().encode("salt").ids == [4]
    elsewhere = tmp_path / "elsewhere" / "copy"
    shutil.copytree(folder, elsewhere)
    with pytest.raises(BundleError, match=r"shared with other bundles.*copy that folder as well"):
        load_bundle(elsewhere)
    for name in ("tokenizer.json", "tables.safetensors"):
        shutil.copyfile(load_bundle(folder).file(name), elsewhere / name)
    load_bundle(elsewhere)
    damaged = tmp_path / "shared" / shared[0]
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    with pytest.raises(BundleError, match="is damaged"):
        load_bundle(folder)


def test_a_file_that_changes_after_it_was_checked_is_not_used(folder: Path) -> None:
    bundle = load_bundle(folder)
    for name in ("tokenizer.json", "weights.safetensors", "model.onnx", "reference.json"):
        path = folder / name
        content = path.read_bytes()
        for changed in (content[:-2], content[:-1] + b"x", content + b" "):
            path.write_bytes(changed)
            with pytest.raises(BundleError, match=name):
                bundle.read(name)
        path.write_bytes(content)
        assert bundle.read(name) == content
