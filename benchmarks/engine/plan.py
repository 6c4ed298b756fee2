"""What a run measures: every combination, in an order that keeps comparisons fair.

A group holds all configurations of one batch size and length. Its attentions, engines and
precisions are timed in interleaved rounds, so that noise on the machine hits all of them alike.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from benchmarks.engine.networks import SERIES
from benchmarks.engine.prediction import FIRST_LENGTHS
from benchmarks.records import UNFUSED, Measurement
from models.bundle import Precision
from models.mechanisms import ATTENTIONS

_LONG = 60.0  # seconds of timing from which fewer rounds must do
LENGTHS = tuple(2**power for power in range(7, 17))


@dataclass(frozen=True)
class Configuration:
    """One combination to measure."""

    attention: str
    engine: str
    device: str
    precision: Precision
    threads: int
    length: int
    batch: int

    @property
    def series(self) -> tuple[str, str, str]:
        """What is the same at every length and batch size."""
        return self.attention, self.engine, self.precision

    @property
    def rough_seconds(self) -> float:
        """A rough guess of one run on a slow core, for the progress bar alone."""
        quadratic = self.attention == UNFUSED or not ATTENTIONS[self.attention].linear
        per_square = 1.5e-8 if quadratic else 0.0
        return self.batch * (2e-5 * self.length + per_square * self.length**2)

    @classmethod
    def of(cls, record: Measurement) -> Configuration:
        """The configuration that a record is of."""
        return cls(
            attention=record.attention,
            engine=record.engine,
            device=record.device,
            precision=record.precision,
            threads=record.threads,
            length=record.length,
            batch=record.batch,
        )


@dataclass(frozen=True)
class Plan:
    """What is asked for.

    rounds       rounds of interleaved timing
    budget       seconds of timing per configuration, unless a single round takes longer
    most         most runs per round
    max_seconds  configurations whose run is predicted to take longer are left out
    """

    attentions: tuple[str, ...] = SERIES
    engines: tuple[str, ...] = ("onnxruntime", "torch")
    precisions: tuple[Precision, ...] = ("fp32", "int8")
    lengths: tuple[int, ...] = LENGTHS
    batches: tuple[int, ...] = (1,)
    device: str = "cpu"
    threads: int = 1
    rounds: int = 5
    budget: float = 1.5
    most: int = 20
    max_seconds: float = 120.0

    def fingerprint(self) -> str:
        """The same for the same plan: an interrupted run is found again by it."""
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def groups(self) -> Iterator[list[Configuration]]:
        """Groups, short documents first: what they took predicts the longer ones."""
        longer = max(self.lengths) > max(FIRST_LENGTHS)
        lengths = sorted({*self.lengths, *(FIRST_LENGTHS if longer else ())})
        for batch in sorted(self.batches):
            for length in lengths:
                yield [
                    Configuration(
                        attention, engine, self.device, precision, self.threads, length, batch
                    )
                    for attention in self.attentions
                    for engine in self.engines
                    for precision in self.precisions
                    if engine == "onnxruntime" or precision == "fp32"
                ]

    def rounds_for(self, first_seconds: float) -> int:
        """Rounds of a configuration; those whose runs take very long have three at most."""
        return self.rounds if first_seconds * self.rounds <= _LONG else min(3, self.rounds)

    def runs_per_round(self, first_seconds: float) -> int:
        """How often a configuration runs in each round."""
        affordable = self.budget / self.rounds / max(first_seconds, 1e-9)
        return max(1, min(self.most, round(affordable)))


#: Under two minutes on two cores, for a first look.
QUICK = Plan(
    engines=("onnxruntime",),
    precisions=("fp32",),
    lengths=(256, 1024, 2048, 4096),
    rounds=3,
    budget=0.5,
    max_seconds=5.0,
)
