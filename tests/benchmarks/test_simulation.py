"""The simulated scheduler: the law of a closed loop, and what the order makes of it."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from benchmarks.documents.lengths import LogNormal
from benchmarks.records import percentile
from benchmarks.simulation import POLICY, Simulation

IN_ORDER = replace(POLICY, short_first_share=0.0)
CALLERS = 32


def mixed(count: int) -> list[int]:
    source = random.Random(7)
    return [LogNormal().draw(source) for _ in range(count)]


def test_the_mean_is_callers_over_throughput_whatever_the_order() -> None:
    for policy in (POLICY, IN_ORDER):
        simulation = Simulation(policy)
        answers = simulation.closed_loop(mixed(4000), CALLERS)
        assert len(answers) == 4000
        mean = sum(answer.seconds for answer in answers) / len(answers)
        assert mean == pytest.approx(CALLERS * simulation.now / 4000, rel=0.03)
        assert simulation.state.depth == 0
        assert simulation.state.tokens_running == 0


def test_the_shorter_half_first_is_the_knee() -> None:
    """A median of at most a quarter, for a tail half as long again, as in order of arrival."""
    found = {}
    for policy in (POLICY, IN_ORDER):
        answers = Simulation(policy).closed_loop(mixed(6000), CALLERS)
        seconds = [answer.seconds for answer in answers]
        found[policy] = percentile(seconds, 50), percentile(seconds, 99)
    assert found[POLICY][0] < 0.25 * found[IN_ORDER][0]
    assert found[POLICY][1] < 1.6 * found[IN_ORDER][1]


def test_equal_documents_are_answered_in_order_of_arrival() -> None:
    answers = Simulation(POLICY).closed_loop([512] * 1000, CALLERS)
    seconds = sorted(answer.seconds for answer in answers[CALLERS:])
    assert seconds[-1] < 1.3 * seconds[0]
