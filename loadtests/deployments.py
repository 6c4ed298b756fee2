"""Which services a sweep starts: a bundle for each attention, engine and precision asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from models.bundle import FORMAT, MANIFEST, Manifest, find_bundles
from models.description import parse
from models.errors import ConfigError
from models.mechanisms import ATTENTIONS

ENGINES = ("auto", "onnxruntime", "torch")
PRECISIONS = ("fp32", "fp16", "int8")
_FAVOURITE = "elife"  # the longer documents


@dataclass(frozen=True)
class Deployment:
    """A service to start: its bundle's attention and the settings that differ from the defaults."""

    attention: str
    settings: Mapping[str, str]

    @property
    def title(self) -> str:
        """What it is, in a few words."""
        engine, precision = self.settings.get("engine", "auto"), self.settings["precision"]
        parts = [self.attention, engine if engine != "auto" else "", precision]
        return " ".join(part for part in parts if part and part != "fp32")


@dataclass(frozen=True)
class Wanted:
    """What the user asked for; lists are separated by commas."""

    bundle: str | None = None
    attention: str | None = None
    dataset: str | None = None
    engine: str = "auto"
    precision: str = "fp32"
    bundles: Path = Path("bundles")
    settings: Mapping[str, str] | None = None


def find_deployments(wanted: Wanted) -> list[Deployment]:
    """Everything that was asked for, in the order of the registry; refused when one is missing."""
    engines = _names("--engine", wanted.engine, ENGINES)
    precisions = _names("--precision", wanted.precision, PRECISIONS)
    bundles = _bundles(wanted)
    return [
        Deployment(
            attention,
            {"bundle": str(path), "engine": engine, "precision": precision}
            | dict(wanted.settings or {}),
        )
        for (attention, path), engine, precision in product(bundles, engines, precisions)
    ]


def parse_settings(given: list[str]) -> dict[str, str]:
    """Settings of the service from `NAME=VALUE`."""
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name.strip().isidentifier():
            raise ConfigError(f"--set: {text!r} is no setting; write queue_seconds=1")
        if name.strip() in ("port", "host", "bundle", "engine", "precision", "attention"):
            raise ConfigError(f"--set: {name.strip()} is chosen by an option of its own")
        found[name.strip()] = value.strip()
    return found


def _bundles(wanted: Wanted) -> list[tuple[str, Path]]:
    if wanted.bundle is not None:
        if wanted.attention is not None:
            raise ConfigError("give --bundle or --attention, not both")
        inside = wanted.bundles / wanted.bundle
        path = inside if (inside / MANIFEST).is_file() else Path(wanted.bundle)
        if not (path / MANIFEST).is_file():
            raise ConfigError(f"--bundle: there is no bundle {wanted.bundle!r}")
        return [(_attention(path), path.resolve())]
    known = [path.resolve() for path in find_bundles(wanted.bundles)]
    if not known:
        raise ConfigError(f"there are no bundles in {wanted.bundles}: train and export one")
    by_dataset: dict[str, dict[str, Path]] = {}
    for path in known:
        by_dataset.setdefault(path.name.partition("-")[0], {})[_attention(path)] = path
    dataset = wanted.dataset or (_FAVOURITE if _FAVOURITE in by_dataset else min(by_dataset))
    if dataset not in by_dataset:
        raise ConfigError(f"--dataset: no bundle of {dataset!r}; known: {', '.join(by_dataset)}")
    found = by_dataset[dataset]
    if wanted.attention is None:
        name = "nystromformer" if "nystromformer" in found else min(found)
        return [(name, found[name])]
    if wanted.attention == "all":
        return [(name, found[name]) for name in ATTENTIONS.names() if name in found]
    names = _names("--attention", wanted.attention, tuple(ATTENTIONS.names()))
    missing = [name for name in names if name not in found]
    if missing:
        raise ConfigError(
            f"--attention: no bundle of {dataset} with {missing[0]}; there are: {', '.join(found)}"
        )
    return [(name, found[name]) for name in names]


def _attention(path: Path) -> str:
    return parse(Manifest, path, MANIFEST, FORMAT).config.attention


def _names(option: str, given: str, known: tuple[str, ...]) -> list[str]:
    names = list(dict.fromkeys(part.strip() for part in given.split(",")))
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ConfigError(f"{option}: unknown {unknown[0]!r}; known: {', '.join(known)}")
    return names
