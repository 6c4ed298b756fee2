"""The cost model."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.scheduling.forecast import CostModel

LENGTHS = (32, 128, 512, 2048)


@pytest.mark.parametrize(
    ("a", "b", "c"), [(2e-3, 1e-5, 0.0), (1e-4, 1e-5, 1e-8), (0.0, 3e-5, 0.0), (0.0, 0.0, 2e-8)]
)
def test_recovers_a_cost_it_can_express(a: float, b: float, c: float) -> None:
    model = CostModel((n, a + b * n + c * n * n) for n in LENGTHS)
    for n in (1, 300, 16_384):
        assert model.seconds(n) == pytest.approx(a + b * n + c * n * n, rel=0.02, abs=1e-5)


@pytest.mark.parametrize(("a", "b", "c"), [(2e-3, 1e-5, 0.0), (1e-4, 1e-5, 1e-8), (0.0, 0.0, 2e-8)])
def test_tells_the_length_that_takes_so_long(a: float, b: float, c: float) -> None:
    model = CostModel((n, a + b * n + c * n * n) for n in LENGTHS)
    assert model.seconds(model.tokens(0.1)) == pytest.approx(0.1)
    assert model.tokens(a / 2) == 0


def test_no_length_takes_longer_where_all_take_the_same() -> None:
    assert CostModel((n, 1e-3) for n in LENGTHS).tokens(0.1) > 1e12


@given(st.lists(st.tuples(st.integers(1, 100_000), st.floats(1e-6, 100)), min_size=1, max_size=30))
def test_never_predicts_a_negative_or_shrinking_time(samples: list[tuple[int, float]]) -> None:
    model = CostModel(samples)
    predicted = [model.seconds(n) for n in (1, 10, 1000, 100_000)]
    assert predicted[0] >= 0
    assert predicted == sorted(predicted)


def test_follows_a_machine_that_became_slower() -> None:
    model = CostModel((n, 1e-5 * n) for n in LENGTHS)
    for _ in range(100):
        for n in LENGTHS:
            model.observe(n, 3e-5 * n)
    assert model.seconds(1000) == pytest.approx(0.03, rel=0.02)


def test_one_observation_scales_in_proportion() -> None:
    assert CostModel([(1000, 0.5)]).seconds(2000) == pytest.approx(1.0)
