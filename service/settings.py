"""Every setting of the service: one frozen object, read from the environment and flags.

This is the only file that reads the environment. The table in `docs/configuration.md` is
generated from the fields below.
"""

from __future__ import annotations

import difflib
import functools
import math
import os
import types
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, get_args, get_type_hints

from models.bundle import ROOT
from models.errors import ConfigError

PREFIX = "LONGDOC_"


def _setting(
    default: Any,
    meaning: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
    auto: str = "",
    secret: bool = False,
) -> Any:
    about = {"meaning": meaning, "low": low, "high": high, "choices": choices, "auto": auto}
    return field(default=default, metadata=about, repr=not secret)


@dataclass(frozen=True)
class Settings:
    """What a deployment chooses. None stands for `auto` where a field allows it."""

    max_texts: ClassVar[int] = 1000  # in one request
    max_timeout_ms: ClassVar[int] = 600_000  # that a request may name

    bundle: str = _setting("elife-nystromformer", "bundle to serve: a name or a folder")
    attention: str | None = _setting(
        None,
        "take the bundle of the same data set with this attention",
        auto="the bundle's own",
    )
    bundles: Path = _setting(ROOT, "folder in which bundles are found by name")  # noqa: RUF009
    engine: str = _setting(
        "auto", "what runs the network", choices=("auto", "onnxruntime", "openvino", "torch")
    )
    device: str = _setting("auto", "where it runs", choices=("auto", "cpu", "cuda"))
    precision: str = _setting(
        "fp32",
        "which of the bundle's graphs; with OpenVINO, what it computes the fp32 graph in",
        choices=("fp32", "fp16", "int8", "bf16", "f16"),
    )
    host: str = _setting("127.0.0.1", "address to listen on; 0.0.0.0 for all")
    port: int = _setting(8000, "port to listen on; 0 picks a free one", low=0, high=65535)
    workers: int | None = _setting(
        None,
        "documents that run at once, one thread each",
        low=1,
        high=1024,
        auto="one per usable core; one on a GPU",
    )
    long_workers: int | None = _setting(
        None,
        "further workers, of lower priority, for long documents; 0 runs all on `workers`",
        low=0,
        high=1024,
        auto="as many as `workers`; none on a GPU",
    )
    short_first_share: float = _setting(
        0.5,
        "share of documents, the shortest ones, that go before the others when several wait; with "
        "0, all are served in order of arrival",
        low=0,
        high=1,
    )
    queue_seconds: float = _setting(
        3.0, "predicted wait above which requests get 429", low=0.01, high=3600
    )
    max_batch_size: int = _setting(
        8, "most documents in one run; 1 runs each alone", low=1, high=1024
    )
    max_running_tokens: int | None = _setting(
        None,
        "most tokens in all runs at once, which bounds memory",
        low=1,
        high=1 << 30,
        auto="the model's limit for each worker",
    )
    window_overlap: int = _setting(
        256,
        "tokens that neighbouring windows of a long document share, unless the bundle says so",
        low=0,
        high=1 << 20,
    )
    timeout_ms: int = _setting(
        30_000, "time for an answer when the request names none", low=1, high=600_000
    )
    max_body_bytes: int = _setting(
        8 << 20, "largest body, and largest after unpacking", low=1024, high=1 << 30
    )
    max_held_bytes: int = _setting(
        256 << 20,
        "bytes of all bodies kept at once, above which requests get 429",
        low=1024,
        high=1 << 40,
    )
    body_seconds: float = _setting(
        15.0, "time for a request's head, and again for its body, to arrive", low=0.1, high=3600
    )
    drain_delay_seconds: float = _setting(
        0.0,
        "how long to serve on after SIGTERM, with /readyz failing, until balancers have noticed",
        low=0,
        high=3600,
    )
    drain_seconds: float = _setting(
        30.0, "time to answer what is accepted, after that", low=0, high=3600
    )
    api_keys: tuple[str, ...] = _setting(
        (), "keys that callers must send, separated by commas; none: open to all", secret=True
    )
    log_format: str = _setting("text", "form of the log lines", choices=("text", "json"))
    log_level: str = _setting(
        "info", "least important lines to log", choices=("debug", "info", "warning", "error")
    )

    def __post_init__(self) -> None:
        for about in fields(self):
            _check(about, getattr(self, about.name))


def read_settings(
    flags: Mapping[str, str | None], environ: Mapping[str, str] | None = None
) -> Settings:
    """Settings from the flags given, then the environment, then the defaults."""
    environ = os.environ if environ is None else environ
    values: dict[str, Any] = {}
    for about in fields(Settings):
        given = flags.get(about.name)
        source = f"--{about.name.replace('_', '-')}"
        if given is None:
            source = PREFIX + about.name.upper()
            given = environ.get(source)
        if given is not None:
            values[about.name] = _parse(about, given, source)
    return Settings(**values)


def unknown_variables(environ: Mapping[str, str] | None = None) -> list[str]:
    """A sentence for each LONGDOC_ variable that no setting has, such as a misspelt one."""
    environ = os.environ if environ is None else environ
    known = [PREFIX + about.name.upper() for about in fields(Settings)]
    sentences = []
    for name in sorted(n for n in environ if n.startswith(PREFIX) and n not in known):
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        sentences.append(f"{name} is not a setting of the service and is ignored{hint}")
    return sentences


def allowed(about: Field[Any]) -> str:
    """Say in words which values a field takes."""
    kind = _kind(about)
    if about.metadata["choices"]:
        words = "one of " + ", ".join(about.metadata["choices"])
    elif kind is tuple:
        words = "keys of at least 8 visible ASCII characters, separated by commas"
    elif kind in (int, float):
        noun = "a whole number" if kind is int else "a number"
        words = f"{noun} from {about.metadata['low']:,} to {about.metadata['high']:,}"
    else:
        words = "text" if kind is str else "a path"
    return words + (", or auto" if about.metadata["auto"] else "")


def default_text(about: Field[Any]) -> str:
    """A field's default as one would write it."""
    if about.default is None:
        return "auto"
    if about.default == ROOT:
        return "bundles/ beside the program"
    if isinstance(about.default, tuple):
        return "none"
    return str(about.default)


@functools.cache
def _hints() -> dict[str, Any]:
    return get_type_hints(Settings)


def _kind(about: Field[Any]) -> type:
    hint = _hints()[about.name]
    if isinstance(hint, types.UnionType):
        hint = next(part for part in get_args(hint) if part is not type(None))
    return tuple if getattr(hint, "__origin__", None) is tuple else hint


def _parse(about: Field[Any], given: str, source: str) -> Any:
    kind = _kind(about)
    if about.metadata["auto"] and given == "auto":
        return None
    try:
        if kind is tuple:
            value: Any = tuple(key.strip() for key in given.split(",") if key.strip())
        else:
            value = kind(given)
        _check(about, value)
    except ValueError:
        shown = "what was given" if kind is tuple else repr(given)
        raise ConfigError(f"{source} must be {allowed(about)}; got {shown}") from None
    return value


def _check(about: Field[Any], value: Any) -> None:
    kind, rules = _kind(about), about.metadata
    if value is None and rules["auto"]:
        return
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    fits = isinstance(value, kind) and not isinstance(value, bool)
    if fits and kind in (int, float):
        fits = math.isfinite(value) and rules["low"] <= value <= rules["high"]
    elif fits and kind is str:
        fits = bool(value) and (not rules["choices"] or value in rules["choices"])
    elif fits and kind is tuple:
        fits = all(len(key) >= 8 and key.isascii() and key.isprintable() for key in value)
    if not fits:
        shown = "what was given" if kind is tuple else repr(value)
        raise ConfigError(f"{about.name} must be {allowed(about)}; got {shown}")
