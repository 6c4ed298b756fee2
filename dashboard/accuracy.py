"""Accuracy of the bundles against what they cost. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dashboard.costs import Row
from dashboard.reading import document_cost
from dashboard.series import title


@dataclass(frozen=True)
class Classifier:
    """What the dashboard needs to know of a bundle."""

    name: str
    dataset: str
    attention: str
    max_tokens: int
    evaluation: Mapping[str, Any]

    @property
    def accuracy(self) -> float | None:
        """Share of the test documents labelled rightly."""
        return _number(self.evaluation.get("accuracy"))


def typical_length(classifiers: Iterable[Classifier]) -> tuple[int, str] | None:
    """The length at which a data set's classifiers are compared, and what it is.

    The median where an evaluation tells it, else the average.
    """
    for classifier in classifiers:
        median = _number(classifier.evaluation.get("median_tokens"))
        if median:
            return round(median), "median"
        tokens = _number(classifier.evaluation.get("tokens"))
        documents = _number(classifier.evaluation.get("documents"))
        if tokens and documents:
            return round(tokens / documents), "average"
    return None


def accuracy_rows(
    classifiers: Iterable[Classifier],
    latencies: Mapping[str, Mapping[int, float]],
    length: int,
) -> list[Row]:
    """Accuracy and latency in milliseconds at a length; `latencies` are by attention."""
    rows = []
    for classifier in classifiers:
        points = latencies.get(classifier.attention, {})
        latency = document_cost(points, length, classifier.max_tokens) or None
        if classifier.accuracy is None:
            continue
        low, high = _interval(classifier.evaluation)
        rows.append(
            {
                "name": classifier.name,
                "attention": classifier.attention,
                "title": title(classifier.attention),
                "accuracy": classifier.accuracy,
                "macro_f1": _number(classifier.evaluation.get("macro_f1")),
                "low": low,
                "high": high,
                "latency": latency,
            }
        )
    front = pareto(rows)
    return [{**row, "front": row["name"] in front} for row in rows]


def pareto(rows: Sequence[Row]) -> set[str]:
    """The Pareto front: names that no other beats in both accuracy and latency."""
    timed = [row for row in rows if row["latency"] is not None]
    best, front = -math.inf, set()
    for row in sorted(timed, key=lambda row: (row["latency"], -row["accuracy"])):
        if row["accuracy"] > best:
            best = row["accuracy"]
            front.add(row["name"])
    return front


def read_rows(classifiers: Iterable[Classifier]) -> list[Row]:
    """Accuracy by how much of each document was read; all of it is the last."""
    rows = []
    for classifier in classifiers:
        by_read = classifier.evaluation.get("by_read")
        for entry in by_read.get("rows", []) if isinstance(by_read, Mapping) else []:
            tokens = entry.get("tokens")
            rows.append(
                {
                    "attention": classifier.attention,
                    "title": title(classifier.attention),
                    "read": "all" if tokens is None else f"{tokens:,}",
                    "tokens": math.inf if tokens is None else tokens,
                    "accuracy": entry.get("accuracy"),
                    "macro_f1": entry.get("macro_f1"),
                }
            )
    return sorted(rows, key=lambda row: (row["title"], row["tokens"]))


def baseline_of(classifiers: Iterable[Classifier]) -> tuple[str, float, float | None] | None:
    """The baseline of a data set: its method, accuracy and macro-F1."""
    for classifier in classifiers:
        baseline = classifier.evaluation.get("baseline")
        if isinstance(baseline, Mapping) and _number(baseline.get("accuracy")) is not None:
            method = str(baseline.get("method", "TF-IDF"))
            return method, float(baseline["accuracy"]), _number(baseline.get("macro_f1"))
    return None


def _interval(evaluation: Mapping[str, Any]) -> tuple[float | None, float | None]:
    found = evaluation.get("interval_95")
    if isinstance(found, Sequence) and len(found) == 2:
        return _number(found[0]), _number(found[1])
    return None, None


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
