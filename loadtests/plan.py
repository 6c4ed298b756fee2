"""What a load generator sends: where, what, how much and for how long."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Self

from benchmarks.documents.making import Document
from models.errors import ConfigError

#: The environment variable that names a plan's file to Locust.
VARIABLE = "LOADTEST_PLAN"
#: Files in the same folder: the progress, and the result of the first, second, … load.
PROGRESS, RESULT = "progress.json", "result-{}.json"

#: kind of caller: what it sends
KINDS: Mapping[str, str] = {
    "interactive": "one document",
    "batch": "a list of documents",
    "bulk": "a stream of documents (NDJSON)",
    "evidence": "one document, and asks for evidence",
    "v2": "one document by the Open Inference Protocol",
}
#: What `--mix all` means.
ALL = {"interactive": 10, "batch": 1, "bulk": 1, "evidence": 4, "v2": 4}


@dataclass(frozen=True)
class Plan:
    """One load on one service.

    seconds      measured, after the warm-up; None: until it is stopped by hand
    least        go on until this many requests were measured, but not beyond `most_seconds`
    rate         requests a second of the open model
    users        callers of the closed model, each of whom thinks for `think` seconds on average
    mix          the kinds of caller with their weights
    batch_size   documents of one batch; `bulk_size` of one stream
    timeout      how long a caller waits for an answer
    workers      processes among which the load is divided; 0: one process does all
    pid          of the service, when it runs on this machine and may be looked at
    """

    address: str
    service_model: str
    model: Literal["open", "closed"]
    documents: tuple[Document, ...]
    seconds: float | None = 30.0
    warm_up: float = 5.0
    least: int = 0
    most_seconds: float = 0.0
    rate: float = 0.0
    users: int = 1
    think: float = 0.0
    mix: dict[str, int] = field(default_factory=lambda: {"interactive": 1})
    batch_size: int = 8
    bulk_size: int = 32
    timeout: float = 30.0
    seed: int = 0
    workers: int = 0
    key: str = ""
    pid: int | None = None

    def to_json(self) -> str:
        """As text, for other processes and machines."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """From text."""
        values = json.loads(text)
        documents = tuple(Document(**each) for each in values.pop("documents"))
        return cls(documents=documents, **values)

    @classmethod
    def read(cls, path: Path) -> Self:
        """From a file."""
        return cls.from_json(path.read_text(encoding="utf-8"))

    def with_(self, **changes: Any) -> Self:
        """The same with changes."""
        return replace(self, **changes)


def parse_mix(text: str) -> dict[str, int]:
    """Kinds of caller with their weights, from `interactive=8,batch=1`, or `all`."""
    if text == "all":
        return dict(ALL)
    mix: dict[str, int] = {}
    for part in text.split(","):
        kind, _, weight = (piece.strip() for piece in part.partition("="))
        if kind not in KINDS:
            raise ConfigError(f"--mix: unknown {kind!r}; known: {', '.join(KINDS)}, or all")
        if kind in mix:
            raise ConfigError(f"--mix: {kind} is given twice")
        weight = weight or "1"
        if not weight.isdecimal() or not 0 < int(weight) <= 1000:
            raise ConfigError(f"--mix: the weight of {kind} must be a whole number from 1 to 1000")
        mix[kind] = int(weight)
    return mix
