"""What is let in, and how long it is predicted to wait."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from service.errors import Overloaded
from service.scheduling.forecast import Admission
from tests.support.scheduled import ONE_WORKER, document, state_of

HALF_A_SECOND = replace(ONE_WORKER, queue_seconds=0.5)


def test_admission_counts_predicted_work_not_requests() -> None:
    state = state_of(HALF_A_SECOND)
    admission = Admission(state)
    for _ in range(4):
        admission.admit(0.1, 30.0)
        state.add(document(100))
    admission.admit(0.1, 30.0)
    state.add(document(200))
    with pytest.raises(Overloaded) as refused:
        admission.admit(0.001, 30.0)
    assert refused.value.retry_after == pytest.approx(0.6 - 0.25, abs=0.01)
    admission.admit(5.0, 30.0)  # nothing long waits


def test_what_can_only_be_short_is_refused_when_only_long_ones_find_room() -> None:
    state = state_of(HALF_A_SECOND)
    admission = Admission(state)
    state.add(document(600))
    assert admission.is_full(0.1)
    assert not admission.is_full(math.inf)
    with pytest.raises(Overloaded) as refused:
        admission.refuse_if_full(0.1)
    assert refused.value.retry_after == pytest.approx(0.6 - 0.25, abs=0.01)
    admission.refuse_if_full(math.inf)


def test_a_request_that_would_wait_past_its_time_is_refused_at_once() -> None:
    state = state_of()
    state.add(document(500))
    Admission(state).admit(0.1, 0.6)
    with pytest.raises(Overloaded):
        Admission(state).admit(0.1, 0.4)


def test_long_documents_are_predicted_to_wait_for_short_ones() -> None:
    state = state_of()
    admission = Admission(state)
    state.add(document(2000))
    idle = admission.expected_wait(2.0)
    state.add(document(500))
    assert admission.expected_wait(2.0) == pytest.approx(idle + 0.5)
    assert admission.expected_wait(0.1) == pytest.approx(0.5)


def test_a_machine_that_others_use_too_makes_the_wait_longer() -> None:
    state = state_of()
    admission = Admission(state)
    assert admission.slowdown == 1.0
    state.add(document(500))
    for _ in range(30):
        admission.learn_pace(0.01, 0.001)
    assert admission.slowdown > 5
    assert admission.expected_wait(0.1) > 2.5
