"""Text: labelled documents read byte by byte, as the Long Range Arena reads IMDb."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from training.arena.tasks import Examples, Ints, Split, Stage
from training.corpus import SPLITS, read_corpus
from training.data_options import DataOptions
from training.errors import DataError

#: Bytes read of a document.
LENGTH = 1024


@dataclass(frozen=True)
class Text:
    """Documents as bytes, of which the first are read; validation and test are kept apart."""

    name: str
    ids: Ints  # (documents, LENGTH)
    lengths: Ints
    targets: Ints
    splits: Ints
    num_labels: int
    vocab_size: int = 257

    @property
    def stages(self) -> tuple[Stage, ...]:
        """One."""
        return (Stage(LENGTH, judged=True),)

    def draw(self, stage: Stage, count: int, random: np.random.Generator, split: Split) -> Examples:
        """Documents of the split, without repeats where there are enough."""
        rows = np.flatnonzero(self.splits == SPLITS.index(split))
        chosen = random.choice(rows, min(count, len(rows)), replace=False)
        return Examples(self.ids[chosen], self.lengths[chosen], self.targets[chosen])


def read_text(source: str | None) -> Text:
    """The task from any source that `longdoc train` reads."""
    if source is None:
        raise DataError("the task text needs labelled documents: name them with --text")
    if not Path(source).exists():
        raise DataError(f"--text: {source} does not exist")
    corpus = read_corpus(DataOptions(data=source))
    ids = np.zeros((len(corpus.texts), LENGTH), dtype=np.int64)
    lengths = np.zeros(len(corpus.texts), dtype=np.int64)
    for row, text in enumerate(corpus.texts):
        read = np.frombuffer(text.encode()[:LENGTH], dtype=np.uint8)
        ids[row, : len(read)] = read.astype(np.int64) + 1
        lengths[row] = max(1, len(read))
    return Text("text", ids, lengths, corpus.targets, corpus.splits, len(corpus.labels))
