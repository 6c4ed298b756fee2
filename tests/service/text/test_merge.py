"""Merging windows: the formulas restated, digits, and what an engine must not give."""

from __future__ import annotations

import math

import numpy as np
import pytest

from models.errors import EngineError
from service.text.evidence import cut_passages, weigh
from service.text.merge import WindowOutput, merge
from service.text.tokenizer import Reading, Window

LABELS = ("a", "b", "c")
TEXT = "The first sentence is about forty characters. The second one is about as long as that."


def reading(*windows: tuple[int, int], total: int | None = None) -> Reading:
    """A document of as many tokens as its windows read."""
    end = windows[-1][1]
    ends = np.linspace(1, len(TEXT), end).astype(np.int64)
    return Reading(np.arange(end), ends, tuple(Window(*w) for w in windows), total or end)


def output(*logits: float) -> WindowOutput:
    return WindowOutput(np.array(logits, dtype=np.float32), None)


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max())
    return np.asarray(powers / powers.sum())


def test_windows_count_by_their_tokens() -> None:
    outputs = [output(2.0, 0.0, -1.0), output(-1.0, 3.0, 0.5)]
    result = merge(LABELS, TEXT, reading((0, 10), (8, 13)), None, outputs, top_k=None, evidence=0)
    logits = (10 * outputs[0].logits + 5 * outputs[1].logits) / 15
    expected = dict(zip(LABELS, softmax(logits), strict=True))
    assert [score.label for score in result.scores] == sorted(
        LABELS, key=expected.__getitem__, reverse=True
    )
    for score in result.scores:
        assert score.score == pytest.approx(expected[score.label], abs=1e-6)
    assert (result.label, result.score) == (result.scores[0].label, result.scores[0].score)
    assert (result.tokens.windows, result.tokens.used, result.tokens.truncated) == (2, 13, False)


def test_what_was_not_read_is_said() -> None:
    result = merge(
        LABELS, TEXT, reading((0, 10), total=25), None, [output(1, 2, 3)], top_k=1, evidence=0
    )
    assert len(result.scores) == 1
    assert (result.tokens.total, result.tokens.used, result.tokens.truncated) == (25, 10, True)


@pytest.mark.parametrize("logits", [(1000.0, -1000.0, 0.0), (0.1, 0.2, 0.3), (20.0, 0.0, 0.0)])
def test_scores_have_six_digits_and_are_never_certain(logits: tuple[float, ...]) -> None:
    result = merge(LABELS, TEXT, reading((0, 5)), None, [output(*logits)], top_k=None, evidence=0)
    for score in result.scores:
        assert 1e-6 <= score.score <= 1 - 1e-6
        assert score.score == round(score.score, 6)


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_logit_that_is_not_finite_is_an_error_of_the_engine(wrong: float, place: int) -> None:
    logits = [0.0, 1.0, 2.0]
    logits[place] = wrong
    with pytest.raises(EngineError, match="finite"):
        merge(LABELS, TEXT, reading((0, 5)), None, [output(*logits)], top_k=3, evidence=0)


def test_evidence_of_windows_adds_up_to_the_merged_logit() -> None:
    rng = np.random.default_rng(0)
    read = reading((0, 12), (9, 20))
    passages = cut_passages(TEXT)
    outputs, sizes = [], [12, 11]
    for window in read.windows:
        each = rng.normal(size=(len(window), 3)).astype(np.float32)
        assert read.ends is not None
        shares = weigh(passages, read.ends[window.start : window.end], each)
        outputs.append(WindowOutput(each.sum(axis=0), shares))
    logits = sum(n * o.logits for n, o in zip(sizes, outputs, strict=True)) / sum(sizes)
    found = merge(LABELS, TEXT, read, passages, outputs, top_k=3, evidence=100)
    best = LABELS.index(found.label)
    weights = [passage.weight for passage in found.evidence]
    assert weights == sorted(weights, reverse=True)
    assert all(TEXT[p.start : p.end] == p.text for p in found.evidence)
    if len(weights) == len(passages):  # only passages that speak for the label are returned
        assert sum(weights) == pytest.approx(float(np.asarray(logits)[best]), abs=1e-5)
