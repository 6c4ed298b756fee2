"""The bundle that servers under measurement serve, by its public files."""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from benchmarks.servers.process import ROOT
from models.bundle import load_bundle
from models.errors import ConfigError
from models.onnx_network import write_plain

_PREFERRED = ("elife-nystromformer", "imdb-nystromformer")


@dataclass(frozen=True)
class ServedBundle:
    """A bundle; `longest` is how many tokens it reads in one piece."""

    path: Path
    name: str
    digest: str
    attention: str
    labels: list[str]
    longest: int

    @property
    def info(self) -> dict[str, Any]:
        """What the service would say of itself: records are made from it."""
        return {
            "model": self.name,
            "bundle_digest": self.digest,
            "attention": {"name": self.attention},
            "engine": {"name": "onnxruntime", "device": "cpu", "precision": "fp32"},
        }


def read_bundle(path: Path | None) -> ServedBundle:
    """The bundle named, or the first there is of those preferred."""
    if path is None:
        known = [ROOT / "bundles" / name for name in _PREFERRED]
        path = next((each for each in known if (each / "manifest.json").exists()), known[-1])
    file = path / "manifest.json"
    if not file.is_file():
        raise ConfigError(f"{path} is not a bundle: it holds no {file.name}")
    content = file.read_bytes()
    manifest = json.loads(content)
    return ServedBundle(
        path=path,
        name=manifest["name"],
        digest=sha256(content).hexdigest(),
        attention=manifest["config"]["attention"],
        labels=manifest["labels"],
        longest=manifest["max_tokens"],
    )


def write_plain_bundle(bundle: Path, folder: Path) -> Path:
    """The bundle as programs without anything of ours read it: one ONNX file with its weights."""
    target = folder / "bundle"
    target.mkdir()
    write_plain(load_bundle(bundle), target)
    return target
