"""The splits a data set lacks are cut out of train: stratified by label, and seeded."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

#: Share of the documents that a split which is not given gets.
SHARE = 0.1
_TRAIN, _VALID, _TEST = range(3)


def complete_splits(
    labels: Sequence[str], given: Sequence[str | None], seed: int
) -> NDArray[np.int64]:
    """The split of each document: 0 for train, 1 for valid, 2 for test.

    Documents without a split belong to train; valid and test, where no document has them, are
    cut out of it, a tenth of each class.
    """
    codes = {None: _TRAIN, "train": _TRAIN, "valid": _VALID, "test": _TEST}
    splits = np.array([codes[split] for split in given], dtype=np.int64)
    for wanted in (_TEST, _VALID):
        if not np.any(splits == wanted):
            _cut_out(splits, np.array(labels), wanted, np.random.default_rng([seed, wanted]))
    return splits


def _cut_out(
    splits: NDArray[np.int64], labels: NDArray[np.str_], wanted: int, rng: np.random.Generator
) -> None:
    share = SHARE * len(splits) / max(1, int(np.sum(splits == _TRAIN)))
    carried = 0.0  # what rounding owes to the next class
    for label in np.unique(labels):
        members = np.flatnonzero((labels == label) & (splits == _TRAIN))
        due = share * len(members) + carried
        count = int(min(max(round(due), 0), len(members) - 1))
        carried = due - count
        splits[rng.permutation(members)[:count]] = wanted
