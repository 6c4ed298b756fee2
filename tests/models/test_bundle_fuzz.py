"""Whatever is done to a bundle's files, it is refused in a sentence or served as before."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.crafted_bundle import craft, reseal, sha256, write_manifest
from tests.support.stranger import Opener, opener

pytestmark = pytest.mark.slow
NAMES = (
    "manifest.json", "model.onnx", "weights.safetensors", "tables.safetensors", "tokenizer.json",
    "reference.json", "certificate.fp32.json",
)  # fmt: skip
PIECES = (
    b"", b"\x00" * 9, b"\xff" * 9, b"\x80" * 20, b"[" * 3000, b"1e999", b"NaN", b"9" * 5000,
    b'"\\ud800"', b"\x1b[2J", b"null", b"-1", b"{}", b'{"a": 1}',
)  # fmt: skip


@pytest.fixture(scope="module")
def stranger() -> Iterator[Opener]:
    with opener() as process:
        yield process


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return craft(tmp_path_factory.mktemp("original") / "bundle")


def change(content: bytes, place: float, length: int, piece: bytes, how: str) -> bytes:
    """Put a piece in, over what is there or in its place; cut; or say a part twice."""
    at = int(place * len(content))
    if how == "cut":
        return content[:at]
    if how == "twice":
        return content[:at] + content[at : at + length] + content[at:]
    end = at + (len(piece) if how == "over" else length)
    return content[:at] + piece + content[end:]


@given(
    name=st.sampled_from(NAMES),
    place=st.floats(0, 1),
    length=st.integers(0, 40),
    piece=st.sampled_from(PIECES) | st.binary(min_size=1, max_size=8),
    how=st.sampled_from(["over", "instead", "cut", "twice"]),
)
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_changed_file_is_refused_or_harmless(
    name: str,
    place: float,
    length: int,
    piece: bytes,
    how: str,
    original: Path,
    stranger: Opener,
    tmp_path: Path,
) -> None:
    folder = tmp_path / "bundle"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(original, folder)
    changed = change((folder / name).read_bytes(), place, length, piece, how)
    if name == "manifest.json":
        (folder / name).write_bytes(changed)
        seal = f"{sha256(changed)}  manifest.json\n"
        (folder / "manifest.sha256").write_text(seal)
    else:
        (folder / name).write_bytes(changed)
        if name == "model.onnx":
            certificate = json.loads((folder / "certificate.fp32.json").read_text())
            certificate["graph_sha256"] = sha256(changed)
            (folder / "certificate.fp32.json").write_text(json.dumps(certificate))
        reseal(folder)
    found = stranger.open(folder)
    assert found.outcome in ("refused", "served"), found
    assert found.message.isprintable(), found.message
    assert found.seconds < 10


def test_a_manifest_of_another_encoding_is_refused(original: Path, stranger: Opener) -> None:
    folder = original.parent / "utf16"
    shutil.copytree(original, folder)
    write_manifest(folder, (folder / "manifest.json").read_text())
    (folder / "manifest.json").write_bytes("{}".encode("utf-16"))
    assert stranger.open(folder).outcome == "refused"


_SERVE = """
import os, sys
from pathlib import Path
import numpy as np
from models.bundle import load_bundle
from service.engines import open_with_factory
folder = Path(sys.argv[1])
opened = open_with_factory(load_bundle(folder), device="cpu")
batch = np.array([[1, 2, 7]]), np.array([3])
before = opened.engine.run(*batch, contributions=True)
for path in sorted(folder.iterdir()):
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.write(os.urandom(size))
        file.truncate(size // 3)
other = opened.factory.open(threads=1, own_memory=True)
for engine in (opened.engine, other):
    after = engine.run(*batch, contributions=True)
    assert (after.logits == before.logits).all()
    assert (after.contributions == before.contributions).all()
for path in sorted(folder.iterdir()):
    path.unlink()
third = opened.factory.open(threads=1, own_memory=False)
assert (third.run(*batch).logits == before.logits).all()
print("unmoved")
"""


def test_files_overwritten_and_cut_in_place_change_nothing(tmp_path: Path) -> None:
    folder = craft(tmp_path / "bundle")
    done = subprocess.run(
        [sys.executable, "-c", _SERVE, str(folder)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ,
    )
    assert done.stdout == "unmoved\n", (done.returncode, done.stderr[-2000:])
