"""Logistic regression on sparse features, which the baseline and the first stage share."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

Ints = NDArray[np.int64]


def fit_regression(features: Any, targets: Ints, strength: float, seed: int) -> Any:
    """Fit with one thread, so that sums come in one order: same seed, same weights."""
    model = LogisticRegression(C=strength, max_iter=300, tol=1e-4, random_state=seed)
    with threadpool_limits(limits=1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # near enough is good enough
        return model.fit(features, targets)


def linear_parts(model: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Weights (labels, features) and bias (labels,); two labels have opposite ones."""
    weights, bias = model.coef_, model.intercept_
    if len(weights) == 1:
        weights = np.concatenate([-weights, weights]) / 2
        bias = np.concatenate([-bias, bias]) / 2
    return weights, bias
