"""Probabilities are softmax, whatever the size of the logits."""

from __future__ import annotations

import numpy as np
import pytest

from models.probabilities import softmax, softmax_of_few


def test_probabilities_are_softmax_along_the_last_axis() -> None:
    logits = np.random.default_rng(0).normal(size=(4, 5), scale=3)
    wanted = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(softmax(logits), wanted, rtol=1e-12)
    for row, expected in zip(logits, wanted, strict=True):
        assert softmax_of_few(row.tolist()) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("offset", [-1e4, 1e4])
def test_large_logits_do_not_overflow(offset: float) -> None:
    found = softmax(np.array([offset, offset + 1], np.float32))
    assert found.sum() == pytest.approx(1)
    assert softmax_of_few([offset, offset + 1]) == pytest.approx(found)
