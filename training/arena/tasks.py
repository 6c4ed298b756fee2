"""What a task of the arena is: documents made by code, in stages that grow harder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


class Examples(NamedTuple):
    """ids (count, n), 0 in the padding; lengths (count,); targets (count,)."""

    ids: Ints
    lengths: Ints
    targets: Ints

    def part(self, rows: slice | Ints) -> Examples:
        """Some of them."""
        return Examples(self.ids[rows], self.lengths[rows], self.targets[rows])


@dataclass(frozen=True)
class Stage:
    """A step of the curriculum: documents of at most `length` tokens with so many `pairs`.

    `judged` stages are where validation and test take place.
    """

    length: int
    pairs: int = 0
    judged: bool = False


class Task(Protocol):
    """A task: `draw` makes examples of a stage from random numbers, and from nothing else.

    A run goes on to the next stage when one is mastered.
    """

    @property
    def name(self) -> str:
        """How commands and records call it."""
        ...

    @property
    def vocab_size(self) -> int:
        """Ids are below this."""
        ...

    @property
    def num_labels(self) -> int:
        """Targets are below this."""
        ...

    @property
    def stages(self) -> tuple[Stage, ...]:
        """In the order of training."""
        ...

    def draw(self, stage: Stage, count: int, random: np.random.Generator, split: Split) -> Examples:
        """So many examples of the stage; only tasks with given documents look at the split."""
        ...


Split = Literal["train", "valid", "test"]
#: Seeds of the fixed examples, which no training draws from.
_FIXED = {"valid": 1, "test": 2, "train": 3}


def fixed(task: Task, stage: Stage, split: Split, count: int) -> Examples:
    """The examples of a split: the same for every run on every machine."""
    random = np.random.default_rng([_FIXED[split], stage.length, stage.pairs])
    return task.draw(stage, count, random, split)


def fresh(task: Task, stage: Stage, count: int, seed: int, step: int) -> Examples:
    """A batch for training, from the seed and the step alone."""
    random = np.random.default_rng([1000 + seed, stage.length, step])
    return task.draw(stage, count, random, "train")
