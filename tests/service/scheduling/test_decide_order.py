"""The order of one priority class's queue."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from service.scheduling.decide import JobQueue
from service.scheduling.jobs import Call, Caller, Job
from service.scheduling.policy import Policy
from tests.support.scheduled import document

POLICY = Policy(short_first_share=0.5, overtake=10.0, list_delay=4.0, bulk_yield=5.0)


def taught(policy: Policy = POLICY) -> JobQueue:
    """A queue that has seen lengths from 1 to 96: what has up to 51 tokens is short."""
    queue = JobQueue(policy)
    for n in range(1, 97):
        job = document(n)
        queue.push(job)
        queue.remove(job)
    return queue


def order(jobs: Sequence[Job], queue: JobQueue | None = None) -> list[Job]:
    queue = taught() if queue is None else queue
    for each in jobs:
        queue.push(each)
    found = []
    while (job := queue.head) is not None:
        found.append(job)
        queue.remove(job)
    assert len(queue.waiting) == 0
    return found


def lengths(jobs: Sequence[Job], queue: JobQueue | None = None) -> list[int]:
    return [job.tokens for job in order(jobs, queue)]


def test_the_shorter_half_goes_first_and_each_half_in_order_of_arrival() -> None:
    jobs = [document(n, arrival=0.01 * i) for i, n in enumerate((300, 20, 51, 52, 10))]
    assert lengths(jobs) == [20, 51, 10, 300, 52]


def test_nothing_passes_before_it_is_known_what_is_short() -> None:
    jobs = [document(n, arrival=0.01 * i) for i, n in enumerate((300, 20, 100, 50))]
    assert lengths(jobs, JobQueue(POLICY)) == [300, 20, 100, 50]


def test_nothing_passes_where_the_policy_says_so() -> None:
    jobs = [document(n, arrival=0.01 * i) for i, n in enumerate((300, 20, 100, 50))]
    queue = taught(replace(POLICY, short_first_share=0.0))
    assert lengths(jobs, queue) == [300, 20, 100, 50]


def test_a_long_job_is_passed_only_for_a_while() -> None:
    soon, late = document(20, arrival=9.0), document(10, arrival=11.0)
    assert lengths([late, document(300), soon]) == [20, 300, 10]


@pytest.mark.parametrize("spread", [0, 4])
def test_documents_of_about_equal_length_keep_their_order(spread: int) -> None:
    queue = JobQueue(POLICY)
    source = random.Random(1)
    jobs = [document(100 + source.randint(0, spread), arrival=float(n)) for n in range(60)]
    for job in source.sample(jobs, len(jobs)):
        queue.push(job)
        queue.remove(job)
    assert order(jobs, queue) == jobs


def test_a_list_queues_behind_itself() -> None:
    documents = [document(40 + i, ahead=0.04 * i) for i in range(4)]
    assert lengths([*documents, document(50, arrival=0.2)]) == [40, 41, 50, 42, 43]


def test_bulk_work_lets_interactive_work_pass() -> None:
    waiting = [document(10, bulk=True), document(20, arrival=1.0), document(30, arrival=6.0)]
    assert lengths(waiting) == [20, 10, 30]


def test_a_call_is_not_passed() -> None:
    call = Call(Caller(2.0), 0.5, 0.0, function=lambda: None)
    medium, short = document(500, arrival=1.0), document(2, arrival=3.0)
    assert order([short, medium, call]) == [call, short, medium]


def test_the_first_ones_are_found_in_their_order() -> None:
    queue = JobQueue(POLICY)
    jobs = [document(100, arrival=float(n)) for n in range(30)]
    for job in random.Random(1).sample(jobs, len(jobs)):
        queue.push(job)
    queue.remove(jobs[3])
    queue.remove(jobs[5])
    found = [job.caller.arrival for job in queue.first(16)]
    assert found == [n for n in range(18) if n not in (3, 5)]


def test_jobs_that_come_and_leave_do_not_fill_the_memory() -> None:
    queue = JobQueue(POLICY)
    stays = document(10)
    queue.push(stays)
    for _ in range(1000):
        job = document(50, arrival=1.0)
        queue.push(job)
        queue.remove(job)
    assert len(queue.waiting) == 1
    assert len(queue._heap) < 100
    assert queue.head is stays
