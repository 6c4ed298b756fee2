"""The report on documents a network was not trained on: figures, where it fails, how sure it is."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.progress import ProgressBar
from training.metrics import (
    accuracy,
    calibration_error,
    confusion,
    interval,
    log_loss,
    macro_f1,
    per_class,
)
from training.prediction import Predictor
from training.storage import Array, Cache

Ints = NDArray[np.int64]

#: How much of a document is read in the comparison of reading less, in tokens.
READS = (512, 2048, 8192)
_EDGES = (0, 512, 2048, 8192, 16_384, 1 << 40)
_DOCUMENTS = {
    "all": "the test documents",
    "valid": "validation documents",
    "first": "the beginnings of test documents",
}
_READ_TOKENS = 2_000_000  # most tokens to spend on reading the first 8,192 of each document


@dataclass(frozen=True)
class Subject:
    """What is evaluated: a predictor, and the documents with their labels.

    cache   keeps logits, so that a killed evaluation goes on
    seed    of the sample that reading less is measured on, when there are many long documents
    """

    predict: Predictor
    rows: Ints
    targets: Ints
    labels: tuple[str, ...]
    cache: Cache
    seed: int

    def logits(self, name: str, rows: Ints, read: int | None = None) -> Array:
        """Logits of these documents, computed once."""

        def make() -> Array:
            lengths = self.predict.tokens.lengths[rows]
            total = int(np.minimum(lengths, read).sum() if read else lengths.sum())
            title = f"reading {_DOCUMENTS[name.split(maxsplit=1)[0]]}"
            with ProgressBar(title, total, "token") as bar:
                return self.predict(rows, read, bar.add)

        return self.cache.array(f"logits-{name}", (rows.tolist(), read), make)


def evaluate(subject: Subject, baseline_scores: Array | None = None) -> dict[str, Any]:
    """All figures of a report, as plain JSON."""
    logits = np.asarray(subject.logits("all", subject.rows))
    targets, labels = subject.targets, len(subject.labels)
    predicted = logits.argmax(axis=1)
    right = predicted == targets
    lengths = subject.predict.tokens.lengths[subject.rows]
    rivals = None if baseline_scores is None else baseline_scores.argmax(axis=1) == targets
    report: dict[str, Any] = {
        "documents": len(targets),
        "tokens": int(lengths.sum()),
        **_headline(logits, targets, labels),
        "interval_95": interval(int(right.sum()), len(right)),
        "log_loss": log_loss(logits, targets),
        "calibration_error": calibration_error(logits, targets),
        "per_class": _classes(targets, predicted, subject.labels),
        "confusion": confusion(targets, predicted, labels).tolist(),
        "by_length": _by_length(lengths, right, rivals),
        "by_read": _by_read(subject, logits, lengths),
        "correct": np.packbits(right).tobytes().hex(),
    }
    if rivals is not None:
        report["against_baseline"] = paired(right, rivals)
    return report


def paired(ours: NDArray[np.bool_], theirs: NDArray[np.bool_]) -> dict[str, Any]:
    """McNemar's exact test: of the documents that only one gets right, who gets them?"""
    won = int(np.count_nonzero(ours & ~theirs))
    lost = int(np.count_nonzero(~ours & theirs))
    both = won + lost
    tail = sum(math.comb(both, k) for k in range(min(won, lost) + 1)) * 2 / (1 << both)
    return {"only_ours_right": won, "only_theirs_right": lost, "p": min(1.0, tail)}


def sample(rows: Ints, costs: Ints, budget: int, seed: int) -> Ints:
    """As many of the rows, in random but fixed choice, as the budget of tokens allows."""
    order = np.random.default_rng([seed, len(rows)]).permutation(len(rows))
    count = max(1, int(np.searchsorted(np.cumsum(costs[order]), budget, side="right")))
    return np.sort(rows[order[:count]])


def _headline(logits: Array, targets: Ints, labels: int) -> dict[str, float]:
    predicted = logits.argmax(axis=1)
    return {
        "accuracy": accuracy(targets, predicted),
        "macro_f1": macro_f1(targets, predicted, labels),
    }


def _classes(targets: Ints, predicted: Ints, labels: tuple[str, ...]) -> list[dict[str, Any]]:
    matrix = confusion(targets, predicted, len(labels))
    columns = (labels, matrix.sum(axis=1).tolist(), *(x.tolist() for x in per_class(matrix)))
    names = ("label", "documents", "precision", "recall", "f1")
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _by_length(
    lengths: Ints, right: NDArray[np.bool_], rivals: NDArray[np.bool_] | None
) -> list[dict[str, Any]]:
    rows = []
    for low, high in itertools.pairwise(_EDGES):
        inside = (lengths > low) & (lengths <= high)
        if low == 0:
            inside |= lengths == 0
        if not inside.any():
            continue
        row = {
            "over": low,
            "up_to": high if high < _EDGES[-1] else None,
            "documents": int(inside.sum()),
            "accuracy": float(right[inside].mean()),
        }
        if rivals is not None:
            row["baseline_accuracy"] = float(rivals[inside].mean())
        rows.append(row)
    return rows


def _by_read(subject: Subject, logits: Array, lengths: Ints) -> dict[str, Any]:
    """Accuracy when only the beginning is read; documents that end before are as they were."""
    costs = np.where(lengths > READS[0], np.minimum(lengths, READS[-1]), 0)
    every = np.arange(len(lengths))
    chosen = sample(every, costs, _READ_TOKENS, subject.seed)
    targets, labels = subject.targets[chosen], len(subject.labels)
    rows: list[dict[str, Any]] = []
    for read in READS:
        found = logits[chosen].copy()
        longer = np.flatnonzero(lengths[chosen] > read)
        if len(longer):
            found[longer] = subject.logits(f"first {read}", subject.rows[chosen[longer]], read)
        rows.append({"tokens": read, **_headline(found, targets, labels)})
    rows.append({"tokens": None, **_headline(logits[chosen], targets, labels)})
    return {"documents": len(chosen), "rows": rows}
