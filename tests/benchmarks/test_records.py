"""Records refuse what is not true of a measurement, and their figures are right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from benchmarks.environment import available_memory, describe_environment
from benchmarks.records import percentile
from tests.support.results import a_measurement, a_run, environment


@given(
    st.lists(st.floats(0, 1e6), min_size=1, max_size=50),
    st.floats(0, 100),
)
def test_percentiles_are_numpys(values: list[float], share: float) -> None:
    rounding = 1e-12 * max(values) + 1e-300
    assert percentile(values, share) == pytest.approx(np.percentile(values, share), abs=rounding)


def test_a_percentile_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing"):
        percentile([], 50)


def test_figures_come_from_the_samples() -> None:
    record = a_measurement(length=1000, batch=2, samples_seconds=(0.1, 0.2, 0.3))
    assert record.median == 0.2
    assert record.p95 == pytest.approx(0.29)
    assert record.tokens_per_second == 10_000


@pytest.mark.parametrize(
    "values",
    [
        {"length": 0},
        {"batch": 0},
        {"samples_seconds": (-1.0,)},
        {"samples_seconds": (float("nan"),)},
        {"status": "perhaps"},
        {"engine": "abacus"},
        {"surprise": 1},
        {"created": "yesterday"},
        {"peak_bytes": -1},
    ],
)
def test_what_cannot_be_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        a_measurement(**values)


def test_a_busy_machine_is_told_in_the_title() -> None:
    assert not a_run(load_before=0.1).busy
    busy = a_run(load_before=1.9)
    assert busy.busy
    assert "busy machine" in busy.title
    assert "Test CPU, 2 cores, 8 GiB" in busy.title
    assert environment(cores=1).title.startswith("Test CPU, 1 core,")


def test_this_machine_is_described() -> None:
    found = describe_environment()
    assert found.cores >= 1
    assert found.memory_bytes > 1 << 28
    assert found.versions["longdoc"]
    assert 0 < available_memory() <= found.memory_bytes
