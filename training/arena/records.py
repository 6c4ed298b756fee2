"""What a run of the arena found, as JSON that the table is made from."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from training.storage import digest_of, load_json, save_json

FORMAT = 1


@dataclass(frozen=True)
class RunSpec:
    """One run: everything that its result depends on.

    attention   a mechanism's name, or that of a control
    params      its parameters, all of them
    readout     the token that the head reads
    seconds     of processor time
    source      labelled documents, for the tasks that need them
    """

    task: str
    attention: str
    params: Mapping[str, Any]
    readout: str
    seed: int
    rate: float
    batch: int
    seconds: float
    tested: int
    longest: int
    source: str | None = None

    @property
    def key(self) -> str:
        """A name for files: readable, and different when anything differs."""
        plain = asdict(self) | {"params": dict(self.params)}
        name = f"{self.task}-{self.attention}-{self.seed}".replace(" ", "_")
        return f"{name}-{digest_of(plain)[:8]}"


@dataclass
class Outcome:
    """What a run found.

    accuracy    share of right answers by length in tokens, of `tested` documents each
    tested      by length: documents of the test
    trained_to  longest length whose stage was mastered; 0 if none that is judged
    stage       stages mastered, of `stages`
    curve       (seconds, stage, accuracy on the last batches), as training went
    attempts    starts, with the seconds at which each began
    ended       why training ended: "mastered" or "out of time"
    left_out    lengths that were not tested, with the reason
    """

    accuracy: dict[str, float] = field(default_factory=dict)
    tested: dict[str, int] = field(default_factory=dict)
    trained_to: int = 0
    stage: int = 0
    stages: int = 0
    curve: list[tuple[float, int, float]] = field(default_factory=list)
    attempts: list[float] = field(default_factory=list)
    examples: int = 0
    tokens: int = 0
    seconds: float = 0.0
    ended: str = ""
    left_out: dict[str, str] = field(default_factory=dict)


def result_path(folder: Path, spec: RunSpec) -> Path:
    """Where a run's result is."""
    return folder / "results" / f"{spec.key}.json"


def spec_path(folder: Path, key: str) -> Path:
    """Where what a run is asked to do is."""
    return folder / "specs" / f"{key}.json"


def write_result(
    folder: Path, spec: RunSpec, outcome: Outcome, environment: Mapping[str, Any]
) -> None:
    """Store a finished run."""
    save_json(
        result_path(folder, spec),
        {
            "format": FORMAT,
            "spec": asdict(spec) | {"params": dict(spec.params)},
            "outcome": asdict(outcome),
            "environment": dict(environment),
        },
    )


def read_results(folder: Path) -> Iterator[tuple[RunSpec, Outcome]]:
    """All finished runs of a folder."""
    for path in sorted((folder / "results").glob("*.json")):
        found = load_json(path)
        yield RunSpec(**found["spec"]), Outcome(**found["outcome"])


def interval(accuracy: float, tested: int) -> tuple[float, float]:
    """Wilson's 95% interval of a share."""
    z = 1.959964
    middle = (accuracy + z * z / (2 * tested)) / (1 + z * z / tested)
    half = z * math.sqrt(accuracy * (1 - accuracy) / tested + z * z / (4 * tested**2))
    half /= 1 + z * z / tested
    return max(0.0, middle - half), min(1.0, middle + half)
