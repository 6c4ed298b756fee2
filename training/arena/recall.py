"""Recall: which value followed a key, somewhere among noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from training.arena.tasks import Examples, Split, Stage

#: Tokens without a meaning.
NOISE = 16


@dataclass(frozen=True)
class Recall:
    """Pairs of key and value among noise; the key asked for stands last, and first as well.

    Keys and values of a document are all different, so that what a bag of tokens and pairs holds
    tells nothing about which value is asked for, if there are as many pairs as values.

    pairs     key-value pairs of the last stages
    lengths   of the last stages, in tokens
    within    share of the document, from its start, that the pairs stand in
    asked_first   whether the key asked for stands first as well
    """

    name: str
    pairs: int
    lengths: tuple[int, ...]
    within: float = 1.0
    first_length: int = 32
    asked_first: bool = True

    @property
    def num_labels(self) -> int:
        """One for each value."""
        return max(8, self.pairs)

    @property
    def keys(self) -> int:
        """Different keys."""
        return 2 * self.num_labels

    @property
    def vocab_size(self) -> int:
        """0 pads; then noise, keys, values."""
        return 1 + NOISE + self.keys + self.num_labels

    @property
    def stages(self) -> tuple[Stage, ...]:
        """Pairs double from one, then lengths."""
        stages = []
        pairs, length = 1, self.first_length
        while pairs < self.pairs:
            stages.append(Stage(max(length, 4 * pairs + 2), pairs))
            pairs *= 2
        length = max(length, 4 * self.pairs)
        while length < self.lengths[0]:
            stages.append(Stage(length, self.pairs))
            length *= 2
        while length < self.lengths[-1]:
            stages.append(Stage(length, self.pairs, judged=length in self.lengths))
            length *= 2
        return (*stages, Stage(length, self.pairs, judged=True))

    def draw(self, stage: Stage, count: int, random: np.random.Generator, split: Split) -> Examples:
        """Every document has exactly the stage's length."""
        ids = random.integers(1, 1 + NOISE, (count, stage.length))
        room = int((stage.length - 2) * self.within) // 2  # places for a pair
        place = _some_of(random, count, room, stage.pairs)
        shift = random.integers(0, 2, (count, 1)) if stage.length % 2 else 0
        place = 1 + 2 * place + shift
        key = 1 + NOISE + _some_of(random, count, self.keys, stage.pairs)
        value = _some_of(random, count, self.num_labels, stage.pairs)
        row = np.arange(count)
        ids[row[:, None], place] = key
        ids[row[:, None], place + 1] = 1 + NOISE + self.keys + value
        asked = random.integers(0, stage.pairs, count)
        ids[:, -1] = key[row, asked]
        if self.asked_first:
            ids[:, 0] = ids[:, -1]
        return Examples(ids, np.full(count, stage.length), value[row, asked])


def _some_of(
    random: np.random.Generator, count: int, among: int, wanted: int
) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """Different numbers below `among`, in random order: (count, wanted)."""
    return np.argsort(random.random((count, among)), axis=1)[:, :wanted]
