"""What is odd about labelled documents that can be trained on all the same, and what to do."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from training.metrics import interval

_FEW_TESTED = 100  # documents; below this an accuracy is known to within some ten points
_FEW_OF_A_CLASS = 10
_SHOWN = 5  # labels named in a sentence
_SEPARATORS = (";", "|", ",")
_LIKELY = 0.8  # accuracy that the uncertainty is worked out for


def remarks(labels: Sequence[str], splits: NDArray[np.int64]) -> list[str]:
    """Sentences about labels and splits (0 train, 1 valid, 2 test); none when all is well."""
    found = [
        _few_documents(splits),
        _small_classes(Counter(labels)),
        _several_labels(Counter(labels)),
        _numbers(set(labels)),
    ]
    return [sentence for sentence in found if sentence]


def _few_documents(splits: NDArray[np.int64]) -> str:
    train, tested = (int(np.count_nonzero(splits == split)) for split in (0, 2))
    if tested >= _FEW_TESTED:
        return ""
    low, high = interval(round(_LIKELY * tested), tested)
    return (
        f"there are {train} documents to learn from and {tested} to test on: the accuracy "
        f"measured will be uncertain by about {50 * (high - low):.0f} percentage points either "
        f"way. Add documents until at least {_FEW_TESTED} are for testing, or take the result as "
        "a trial"
    )


def _small_classes(counts: Counter[str]) -> str:
    small = sorted(label for label, count in counts.items() if count < _FEW_OF_A_CLASS)
    if not small:
        return ""
    which = ", ".join(f"{label!r} {counts[label]}" for label in small[:_SHOWN])
    more = f" and {len(small) - _SHOWN} more" if len(small) > _SHOWN else ""
    return (
        f"{len(small)} of {len(counts)} classes have fewer than {_FEW_OF_A_CLASS} documents "
        f"({which}{more}), too few to learn or to test. Add documents to them, merge them with "
        "others, or leave their rows out"
    )


def _several_labels(counts: Counter[str]) -> str:
    """Cells such as `a;b`, where the parts are labels elsewhere, too."""
    for separator in _SEPARATORS:
        parts = {
            label: [part.strip() for part in label.split(separator)]
            for label in counts
            if separator in label
        }
        used = Counter(part for pieces in parts.values() for part in set(pieces))
        several = [
            label
            for label, pieces in parts.items()
            if all(part and (part in counts or used[part] > 1) for part in pieces)
        ]
        if several:
            rows = sum(counts[label] for label in several)
            first = min(several)
            return (
                f"{rows} rows seem to have several labels in one cell, such as {first!r}. A "
                f"document has one label here, so {first!r} is learnt as a class of its own. "
                "Keep the label that matters most, or train a classifier for each label"
            )
    return ""


def _numbers(labels: set[str]) -> str:
    if not all(re.fullmatch(r"[+-]?\d+([.,]\d+)?", label) for label in labels):
        return ""
    shown = ", ".join(sorted(labels)[:_SHOWN])
    return (
        f"the labels are numbers ({shown}), which answers will show as they are. Write the names "
        "of the classes in their place, or name 0, 1, … with --label-names A,B,…"
    )
