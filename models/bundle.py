"""What export writes and the service loads: a folder that is checked before it is believed.

manifest.json         what the bundle is, and the SHA-256 of every other file
manifest.sha256       the SHA-256 of manifest.json, as `sha256sum` writes it
model.onnx            the graph, without its large tensors
weights.safetensors   the weights, for the graph and for PyTorch, but for those in
tables.safetensors    the vectors of tokens and pairs, which bundles of a data set can share
tokenizer.json        the tokenizer, which they can share as well
reference.json        a few documents and their probabilities in float32
certificate.*.json    what was measured of each precision
card.md               the model card

A file that several bundles share lies once in `shared/` beside them, named by its SHA-256.

Files are opened and checked by whoever needs them, each time: what is used is what was checked,
even when somebody writes over a file meanwhile. Free of torch.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self

from pydantic import Field, model_validator

from models.checkpoint import Checkpoint
from models.description import (
    CARD,
    MAX_JSON_BYTES,
    TABLES,
    TOKENIZER,
    WEIGHTS,
    Description,
    Document,
    JsonObject,
    Line,
    parse_text,
)
from models.errors import BundleError
from models.files import inner_file, is_plain_name, open_file, read_file, read_text, sha256_of
from models.plain_json import parse_json
from models.reference import FORMAT as REFERENCE_FORMAT
from models.reference import Reference
from models.shapes import check_shapes
from models.tensors import Array, Stored, read_layout, read_tensors

if TYPE_CHECKING:
    from tokenizers import Tokenizer

FORMAT: Final = 2
MANIFEST = "manifest.json"
SEAL = "manifest.sha256"
REFERENCE = "reference.json"
SHARED = "shared"
_PACKAGED = Path(__file__).resolve().with_name("bundles")  # in an installed wheel
#: Where the bundles are that came with this installation.
ROOT = _PACKAGED if _PACKAGED.is_dir() else Path(__file__).resolve().parent.parent / "bundles"

Precision = Literal["fp32", "fp16", "int8"]
#: What OpenVINO can compute the fp32 graph in.
Computed = Literal["openvino-fp32", "openvino-bf16", "openvino-f16"]

_MAX_BYTES = 4 << 30  # of all files together
_MOST_BYTES: Mapping[str, int] = {".json": 64 << 20, ".onnx": 256 << 20, ".safetensors": 2 << 30}
_MOST_OTHERS = 16 << 20  # of a card or a picture
_MAX_FILES = 100


class FileEntry(Document):
    """What a file must be; a shared one may lie beside the bundle."""

    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    bytes: Annotated[int, Field(ge=0)]
    shared: bool = False


class Graph(Document):
    """One precision's ONNX graph.

    file         its name; None when it is not in the bundle
    certificate  the file with what was measured of it
    valid        whether it may serve
    reason       why it may or may not, in a sentence
    """

    file: Line | None
    certificate: Line
    valid: bool
    reason: Line


class Manifest(Description):
    """What a bundle is.

    version      the bundle's own version, counted by whoever exports it
    provenance   how the network was trained and exported
    graphs       the precisions that were exported, each with its certificate
    computed     what else the fp32 graph was certified for, by engine and precision
    files        every file's digest and size, but the manifest's own
    """

    format: Literal[2] = FORMAT
    version: Annotated[str, Field(pattern=r"^[0-9][0-9A-Za-z.+-]{0,31}$")]
    provenance: JsonObject
    graphs: dict[Precision, Graph]
    computed: dict[Computed, Graph] = Field(default_factory=dict)
    files: Annotated[dict[str, FileEntry], Field(max_length=_MAX_FILES)]

    @model_validator(mode="after")
    def _names_its_files(self) -> Self:
        for name, entry in self.files.items():
            if not is_plain_name(name) or name in (MANIFEST, SEAL):
                raise ValueError(f"{name!r} in files could leave the folder or names the manifest")
            most = _MOST_BYTES.get(Path(name).suffix, _MOST_OTHERS)
            if entry.bytes > most:
                raise ValueError(f"{name} has {entry.bytes} bytes; at most {most} are allowed")
        if sum(entry.bytes for entry in self.files.values()) > _MAX_BYTES:
            raise ValueError(f"files has more than {_MAX_BYTES} bytes")
        needed = [WEIGHTS, TABLES, TOKENIZER, REFERENCE, CARD]
        for precision, graph in (*self.graphs.items(), *self.computed.items()):
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
        """The path of one of its files, for tools; what is served goes through `read`."""
        return _locate(self.path, name, self._entry(name))

    def read(self, name: str) -> bytes:
        """The bytes of one of its files, checked: nothing that changes later changes them."""
        entry = self._entry(name)
        path = _locate(self.path, name, entry)
        content = read_file(path, entry.bytes)
        if hashlib.sha256(content).hexdigest() != entry.sha256:
            raise _damaged(path)
        return content

    def tensors(self) -> dict[str, Array]:
        """All weights, as they are stored."""
        tensors: dict[str, Array] = {}
        for name in (TABLES, WEIGHTS):
            content, path = self.read(name), str(self.path / name)
            layout = read_layout(io.BytesIO(content), len(content), path)
            tensors |= read_tensors(content, layout, path)
        return tensors

    def json(self, name: str) -> Mapping[str, Any]:
        """One of its smaller files as a JSON object."""
        path = self.path / name
        try:
            value = parse_json(self._read_small(name))
        except ValueError as error:
            raise BundleError(f"{path} is not JSON that can be read: {error}") from None
        if not isinstance(value, dict):
            raise BundleError(f"{path} is not an object")
        return value

    def tokenizer(self) -> Tokenizer:
        """Its tokenizer; one that could take more than its text is worth is refused."""
        from models.tokenizer_file import load_tokenizer  # noqa: PLC0415 - loads the library

        vocab_size = self.manifest.config.vocab_size
        return load_tokenizer(self.read(TOKENIZER), vocab_size, str(self.path / TOKENIZER))

    def reference(self) -> Reference:
        """A few documents and their probabilities."""
        path = self.path / REFERENCE
        text = self._read_small(REFERENCE).decode(errors="replace")
        reference = parse_text(Reference, text, path, REFERENCE_FORMAT)
        reference.check(len(self.manifest.labels), self.manifest.max_tokens, str(path))
        return reference

    def graph(self, precision: Precision | Computed) -> Graph | None:
        """What was exported or certified under this name."""
        every = (*self.manifest.graphs.items(), *self.manifest.computed.items())
        return next((graph for name, graph in every if name == precision), None)

    def certificate(self, precision: Precision | Computed) -> Mapping[str, Any]:
        """What was measured of one precision."""
        graph = self.graph(precision)
        if graph is None:
            known = ", ".join((*self.manifest.graphs, *self.manifest.computed)) or "none"
            raise BundleError(f"{self.path} was not exported as {precision}; it has: {known}")
        return self.json(graph.certificate)

    def _read_small(self, name: str) -> bytes:
        size = self._entry(name).bytes
        if size > MAX_JSON_BYTES:
            raise BundleError(
                f"{self.path / name} has {size} bytes; at most {MAX_JSON_BYTES} are allowed"
            )
        return self.read(name)

    def _entry(self, name: str) -> FileEntry:
        if name not in self.manifest.files:
            raise BundleError(f"{self.path} names no file {name!r} in its manifest")
        return self.manifest.files[name]


def load_bundle(path: Path | str) -> Bundle:
    """Check the manifest and every file's digest; a BundleError names the file that is wrong."""
    folder = Path(path)
    if not (folder / MANIFEST).is_file():
        raise BundleError(f"{folder} is not a bundle: it holds no {MANIFEST}")
    text = read_text(folder, MANIFEST, MAX_JSON_BYTES)
    manifest = parse_text(Manifest, text, folder / MANIFEST, FORMAT)
    digest = hashlib.sha256(text.encode()).hexdigest()
    if read_text(folder, SEAL, limit=1024) != _seal(digest):
        raise BundleError(
            f"{folder / MANIFEST} is damaged: {SEAL} names another digest; copy the bundle again"
        )
    files = {name: _locate(folder, name, entry) for name, entry in manifest.files.items()}
    for name, file in files.items():  # sizes first: that takes no time
        if file.stat().st_size != manifest.files[name].bytes:
            raise _damaged(file)
    _check_weights(manifest, files)
    for name, file in files.items():
        if _digest(file, manifest.files[name].bytes) != manifest.files[name].sha256:
            raise _damaged(file)
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
    write_manifest(folder, manifest)
    return manifest


def share_files(folder: Path, names: tuple[str, ...] = (TABLES, TOKENIZER)) -> None:
    """Move what other bundles hold as well into `shared/` beside the bundle, and seal it again.

    A bundle that is copied elsewhere takes its shared files along, or finds them inside it.
    """
    bundle = load_bundle(folder)
    entries = dict(bundle.manifest.files)
    store = folder.parent / SHARED
    store.mkdir(exist_ok=True)
    for name in names:
        inside = folder / name
        if inside.is_file():
            inside.replace(store / entries[name].sha256)
        entries[name] = entries[name].model_copy(update={"shared": True})
    write_manifest(folder, bundle.manifest.model_copy(update={"files": entries}))


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write a manifest and its seal."""
    (folder / MANIFEST).write_text(manifest.model_dump_json(indent=2) + "\n", encoding="utf-8")
    (folder / SEAL).write_text(_seal(sha256_of(folder / MANIFEST)), encoding="utf-8")


def find_bundles(root: Path = ROOT) -> list[Path]:
    """The folders under `root` that hold a manifest, by name; none are opened."""
    if not root.is_dir():
        return []
    return sorted(path for path in root.iterdir() if (path / MANIFEST).is_file())


def _locate(folder: Path, name: str, entry: FileEntry) -> Path:
    """Where a file lies: in the bundle, or with those that are shared."""
    if not entry.shared or (folder / name).exists():
        return inner_file(folder, name)
    store = folder.resolve().parent / SHARED
    if not (store / entry.sha256).is_file():
        raise BundleError(
            f"{folder / name} is missing: it is shared with other bundles and lies in {store}; "
            "copy that folder as well"
        )
    return inner_file(store, entry.sha256)


def _check_weights(manifest: Manifest, files: Mapping[str, Path]) -> None:
    """Compare what the weights' headers say with the configuration, before more is read."""
    layout: dict[str, Stored] = {}
    for name in (TABLES, WEIGHTS):
        with open_file(files[name], manifest.files[name].bytes) as (file, size):
            found = read_layout(file, size, str(files[name]))
        twice = layout.keys() & found.keys()
        if twice:
            raise BundleError(f"{files[name]} holds {min(twice)} as well as {TABLES}")
        layout |= found
    shapes = {tensor: stored.shape for tensor, stored in layout.items()}
    check_shapes(shapes, manifest.config, f"{files[WEIGHTS]} with {TABLES}")


def _digest(path: Path, size: int) -> str:
    with open_file(path, size) as (file, _):
        return hashlib.file_digest(file, "sha256").hexdigest()


def _damaged(path: Path) -> BundleError:
    return BundleError(f"{path} is damaged: its digest differs; copy the bundle again")


def _seal(digest: str) -> str:
    return f"{digest}  {MANIFEST}\n"
