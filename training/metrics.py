"""Figures of a classifier from its logits: accuracy, F1, confusion, calibration."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.probabilities import softmax

Ints = NDArray[np.int64]
Floats = NDArray[Any]

_BINS = 15
_TEMPERATURES = (0.25, 4.0)


def accuracy(targets: Ints, predicted: Ints) -> float:
    """The share that is right."""
    return float(np.mean(targets == predicted))


def confusion(targets: Ints, predicted: Ints, labels: int) -> Ints:
    """(labels, labels): documents by their label and the one predicted."""
    matrix = np.zeros((labels, labels), np.int64)
    np.add.at(matrix, (targets, predicted), 1)
    return matrix


def per_class(matrix: Ints) -> tuple[Floats, Floats, Floats]:
    """Precision, recall and F1 of each label; 0 where there is nothing to divide by."""
    right = np.diag(matrix).astype(np.float64)
    precision = right / np.maximum(matrix.sum(axis=0), 1)
    recall = right / np.maximum(matrix.sum(axis=1), 1)
    f1 = 2 * precision * recall / np.maximum(precision + recall, 1e-12)
    return precision, recall, f1


def macro_f1(targets: Ints, predicted: Ints, labels: int) -> float:
    """The mean F1 of the labels that occur."""
    matrix = confusion(targets, predicted, labels)
    occurs = (matrix.sum(axis=0) + matrix.sum(axis=1)) > 0
    return float(per_class(matrix)[2][occurs].mean())


def interval(right: int, total: int) -> list[float]:
    """Wilson's 95% interval of a share."""
    z = 1.96
    share = right / total
    middle = share + z * z / (2 * total)
    half = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    scale = 1 + z * z / total
    return [(middle - half) / scale, (middle + half) / scale]


def log_loss(logits: Floats, targets: Ints) -> float:
    """Mean negative log-likelihood."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    totals = np.log(np.exp(shifted).sum(axis=1))
    return float(np.mean(totals - shifted[np.arange(len(targets)), targets]))


def calibration_error(logits: Floats, targets: Ints) -> float:
    """Expected calibration error: how far confidence and accuracy are apart, in 15 bins."""
    scores = softmax(np.asarray(logits, np.float64))
    confidence = scores.max(axis=1)
    right = scores.argmax(axis=1) == targets
    bins = np.minimum((confidence * _BINS).astype(int), _BINS - 1)
    gaps = [
        abs(confidence[bins == b].sum() - np.count_nonzero(right[bins == b])) for b in range(_BINS)
    ]
    return float(sum(gaps) / len(targets))


def fit_temperature(logits: Floats, targets: Ints) -> float:
    """The number to divide logits by that makes the targets most likely, by golden section."""
    logits = np.asarray(logits, np.float64)
    low, high = np.log(_TEMPERATURES)
    ratio = (np.sqrt(5) - 1) / 2

    def loss(power: float) -> float:
        return log_loss(logits / np.exp(power), targets)

    while high - low > 1e-4:
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        if loss(left) < loss(right):
            high = right
        else:
            low = left
    return float(np.exp((low + high) / 2))
