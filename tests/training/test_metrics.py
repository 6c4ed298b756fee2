"""Figures agree with scikit-learn's, and calibration with what it was made from."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix, f1_score
from sklearn.metrics import log_loss as sklearn_log_loss

from models.probabilities import softmax
from training.evaluation import paired, sample
from training.metrics import (
    accuracy,
    calibration_error,
    confusion,
    fit_temperature,
    interval,
    log_loss,
    macro_f1,
)

RNG = np.random.default_rng(5)
TARGETS = RNG.integers(0, 4, 300)
LOGITS = RNG.normal(size=(300, 4)) + 1.5 * np.eye(4)[TARGETS]
PREDICTED = LOGITS.argmax(axis=1)


def test_figures_agree_with_scikit_learn() -> None:
    assert accuracy(TARGETS, PREDICTED) == np.mean(TARGETS == PREDICTED)
    assert np.array_equal(confusion(TARGETS, PREDICTED, 4), confusion_matrix(TARGETS, PREDICTED))
    assert macro_f1(TARGETS, PREDICTED, 4) == pytest.approx(
        f1_score(TARGETS, PREDICTED, average="macro")
    )
    assert log_loss(LOGITS, TARGETS) == pytest.approx(sklearn_log_loss(TARGETS, softmax(LOGITS)))


def test_a_label_that_never_occurs_does_not_count() -> None:
    assert macro_f1(TARGETS, PREDICTED, 9) == pytest.approx(macro_f1(TARGETS, PREDICTED, 4))


def test_the_temperature_undoes_what_was_done() -> None:
    rng = np.random.default_rng(1)
    honest = rng.normal(size=(20_000, 3)) * 2
    targets = np.array([rng.choice(3, p=p) for p in softmax(honest)])
    for factor in (0.5, 1.0, 3.0):
        assert fit_temperature(honest * factor, targets) == pytest.approx(factor, rel=0.05)
    assert calibration_error(honest, targets) < 0.01
    assert calibration_error(honest * 3, targets) > 0.1


def test_the_calibration_error_of_constant_confidence() -> None:
    logits = np.log(np.array([[0.8, 0.2]])).repeat(10, axis=0)
    targets = np.array([0] * 6 + [1] * 4)
    assert calibration_error(logits, targets) == pytest.approx(0.2)


def test_the_paired_test_is_mcnemars() -> None:
    ours = np.array([1] * 8 + [0] * 2 + [1] * 50, dtype=bool)
    theirs = np.array([0] * 8 + [1] * 2 + [1] * 50, dtype=bool)
    found = paired(ours, theirs)
    assert (found["only_ours_right"], found["only_theirs_right"]) == (8, 2)
    assert found["p"] == pytest.approx(2 * (1 + 10 + 45) / 1024)
    assert paired(ours, ours)["p"] == 1.0


def test_the_interval_holds_the_share() -> None:
    low, high = interval(730, 1000)
    assert (low, high) == pytest.approx((0.7016, 0.7566), abs=1e-3)
    assert interval(10, 10)[1] == pytest.approx(1.0)


def test_a_sample_is_fixed_and_within_its_budget() -> None:
    rows, costs = np.arange(100, 200), np.full(100, 10)
    chosen = sample(rows, costs, 255, seed=3)
    assert len(chosen) == 25
    assert np.array_equal(chosen, sample(rows, costs, 255, seed=3))
    assert np.array_equal(sample(rows, costs, 10_000, seed=3), rows)
    assert len(sample(rows, costs, 1, seed=3)) == 1
