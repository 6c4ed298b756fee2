"""ListOps: the value of nested operations on digits, as Nangia and Bowman made it.

A node is an operator with a quarter's probability, down to a depth of 10; an operator has 2 to 10
arguments. Trees whose length is not within the limits are thrown away.
"""

from __future__ import annotations

import random as python_random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from training.arena.tasks import Examples, Split, Stage

DEEPEST, MOST_ARGUMENTS, OPERATOR = 10, 10, 0.25
#: Ids: 0 pads, 1 to 10 are the digits, then the operators, then the closing bracket.
FIRST_OPERATOR = 11


def median(values: Sequence[int]) -> int:
    """The median, cut to a whole number."""
    ordered, middle = sorted(values), len(values) // 2
    if len(values) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) // 2


OPERATORS: tuple[Callable[[Sequence[int]], int], ...] = (
    min,
    max,
    median,
    lambda values: sum(values) % 10,
)
CLOSE = FIRST_OPERATOR + len(OPERATORS)


@dataclass(frozen=True)
class ListOps:
    """Expressions of `shortest` to `longest` tokens, both left out, and their value."""

    name: str
    shortest: int
    longest: int
    num_labels: int = 10
    vocab_size: int = CLOSE + 1

    @property
    def stages(self) -> tuple[Stage, ...]:
        """One."""
        return (Stage(self.longest, judged=True),)

    def draw(self, stage: Stage, count: int, random: np.random.Generator, split: Split) -> Examples:
        """Expressions whose length fits."""
        source = python_random.Random(int(random.integers(1 << 62)))  # noqa: S311 - no secrets
        ids = np.zeros((count, stage.length), dtype=np.int64)
        lengths = np.zeros(count, dtype=np.int64)
        targets = np.zeros(count, dtype=np.int64)
        for row in range(count):
            while True:
                tokens: list[int] = []
                value = grow(source, tokens, 1, self.longest)
                if value is not None and self.shortest < len(tokens) < self.longest:
                    break
            ids[row, : len(tokens)] = tokens
            lengths[row], targets[row] = len(tokens), value
        return Examples(ids, lengths, targets)


def grow(random: python_random.Random, tokens: list[int], depth: int, longest: int) -> int | None:
    """Append a random tree's tokens and return its value; None when they become too many.

    The root is an operator: a lone digit would be thrown away for its length.
    """
    if depth >= DEEPEST or (depth > 1 and random.random() >= OPERATOR):
        value = random.randrange(10)
        tokens.append(1 + value)
        return value
    which = random.randrange(len(OPERATORS))
    tokens.append(FIRST_OPERATOR + which)
    values = []
    for _ in range(random.randint(2, MOST_ARGUMENTS)):
        value_below = grow(random, tokens, depth + 1, longest)
        if value_below is None or len(tokens) >= longest:
            return None
        values.append(value_below)
    tokens.append(CLOSE)
    return OPERATORS[which](values)
