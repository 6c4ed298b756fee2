"""What export writes and the service loads: a folder that is checked before it is believed.

manifest.json         what the bundle is, and the SHA-256 of every other file
manifest.sha256       the SHA-256 of manifest.json, as `sha256sum` writes it
model.onnx            the graph; its large weights lie in weights.safetensors
weights.safetensors   the weights, for the graph and for PyTorch
tokenizer.json        the tokenizer
certificate.*.json    what was measured of each precision
card.md               the model card

Free of torch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, model_validator

from models.checkpoint import Checkpoint
from models.description import CARD, TOKENIZER, WEIGHTS, Description, Document, JsonObject, parse
from models.errors import BundleError
from models.files import inner_file, is_plain_name, read_text, sha256_of

FORMAT: Final = 1
MANIFEST = "manifest.json"
SEAL = "manifest.sha256"
_PACKAGED = Path(__file__).resolve().with_name("bundles")  # in an installed wheel
#: Where the bundles are that came with this installation.
ROOT = _PACKAGED if _PACKAGED.is_dir() else Path(__file__).resolve().parent.parent / "bundles"

Precision = Literal["fp32", "fp16", "int8"]

_MAX_CERTIFICATE_BYTES = 4 << 20


class FileEntry(Document):
    """What a file must be."""

    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    bytes: Annotated[int, Field(ge=0)]


class Graph(Document):
    """One precision's ONNX graph.

    file         its name; None when it is not in the bundle
    certificate  the file with what was measured of it
    valid        whether it may serve
    reason       why it may or may not, in a sentence
    """

    file: str | None
    certificate: str
    valid: bool
    reason: str


class Manifest(Description):
    """What a bundle is.

    version      the bundle's own version, counted by whoever exports it
    provenance   how the network was trained and exported
    graphs       the precisions that were exported, each with its certificate
    files        every file's digest and size, but the manifest's own
    """

    format: Literal[1] = FORMAT
    version: Annotated[str, Field(pattern=r"^[0-9][0-9A-Za-z.+-]{0,31}$")]
    provenance: JsonObject
    graphs: dict[Precision, Graph]
    files: dict[str, FileEntry]

    @model_validator(mode="after")
    def _names_its_files(self) -> Self:
        for name in self.files:
            if not is_plain_name(name) or name in (MANIFEST, SEAL):
                raise ValueError(f"{name!r} in files could leave the folder or names the manifest")
        needed = [WEIGHTS, TOKENIZER, CARD]
        for precision, graph in self.graphs.items():
            needed.append(graph.certificate)
            if graph.file is not None:
                needed.append(graph.file)
            elif graph.valid:
                raise ValueError(f"graph {precision} is valid but has no file")
        missing = sorted(set(needed) - set(self.files))
        if missing:
            raise ValueError(f"files lacks {', '.join(missing)}")
        return self


@dataclass(frozen=True)
class Bundle:
    """A bundle whose every file has been checked. `digest` stands for all of its content."""

    path: Path
    manifest: Manifest
    digest: str

    def file(self, name: str) -> Path:
        """The path of one of its files."""
        if name not in self.manifest.files:
            raise BundleError(f"{self.path} names no file {name!r} in its manifest")
        return inner_file(self.path, name)

    def certificate(self, precision: Precision) -> Mapping[str, Any]:
        """What was measured of one precision's graph."""
        graph = self.manifest.graphs.get(precision)
        if graph is None:
            known = ", ".join(self.manifest.graphs) or "none"
            raise BundleError(f"{self.path} was not exported as {precision}; it has: {known}")
        text = read_text(self.path, graph.certificate, _MAX_CERTIFICATE_BYTES)
        try:
            certificate = json.loads(text)
        except json.JSONDecodeError as error:
            raise BundleError(f"{self.path / graph.certificate} is not JSON: {error}") from None
        if not isinstance(certificate, dict):
            raise BundleError(f"{self.path / graph.certificate} is not an object")
        return certificate


def load_bundle(path: Path | str) -> Bundle:
    """Check the manifest and every file's digest; a BundleError names the file that is wrong."""
    folder = Path(path)
    if not (folder / MANIFEST).is_file():
        raise BundleError(f"{folder} is not a bundle: it holds no {MANIFEST}")
    manifest = parse(Manifest, folder, MANIFEST, FORMAT)
    digest = sha256_of(folder / MANIFEST)
    if read_text(folder, SEAL, limit=1024) != _seal(digest):
        raise BundleError(
            f"{folder / MANIFEST} is damaged: {SEAL} names another digest; copy the bundle again"
        )
    for name, entry in manifest.files.items():
        file = inner_file(folder, name)
        if file.stat().st_size != entry.bytes or sha256_of(file) != entry.sha256:
            raise BundleError(f"{file} is damaged: its digest differs; copy the bundle again")
    return Bundle(folder, manifest, digest)


def seal_bundle(
    folder: Path,
    checkpoint: Checkpoint,
    *,
    version: str,
    provenance: Mapping[str, Any],
    graphs: Mapping[Precision, Graph],
) -> Manifest:
    """Write the manifest of a folder whose other files are all in place."""
    files = {
        file.name: FileEntry(sha256=sha256_of(file), bytes=file.stat().st_size)
        for file in sorted(folder.iterdir())
        if file.name not in (MANIFEST, SEAL)
    }
    described = {name: getattr(checkpoint, name) for name in Description.model_fields}
    manifest = Manifest(
        **described,
        version=version,
        provenance=dict(provenance),
        graphs=dict(graphs),
        files=files,
    )
    (folder / MANIFEST).write_text(manifest.model_dump_json(indent=2) + "\n", encoding="utf-8")
    (folder / SEAL).write_text(_seal(sha256_of(folder / MANIFEST)), encoding="utf-8")
    return manifest


def find_bundles(root: Path = ROOT) -> list[Path]:
    """The folders under `root` that hold a manifest, by name; none are opened."""
    if not root.is_dir():
        return []
    return sorted(path for path in root.iterdir() if (path / MANIFEST).is_file())


def _seal(digest: str) -> str:
    return f"{digest}  {MANIFEST}\n"
