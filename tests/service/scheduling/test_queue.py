"""The order of one priority class's queue."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from service.scheduling.policy import Policy
from service.scheduling.queue import Job, JobQueue, Step, Ticket
from tests.support.scheduled import piece

AGEING = Policy(overtake=4.0, list_delay=4.0, bulk_yield=5.0)


def order(policy: Policy, jobs: Sequence[Job], *, in_order: bool = False) -> list[Job]:
    queue = JobQueue(policy)
    for each in jobs:
        queue.push(each)
    found = []
    while (job := queue.head(in_order=in_order)) is not None:
        found.append(job)
        queue.remove(job)
    assert len(queue) == 0
    return found


def lengths(policy: Policy, jobs: Sequence[Job]) -> list[int]:
    return [job.tokens for job in order(policy, jobs)]


def test_shortest_goes_first() -> None:
    assert lengths(AGEING, [piece(n) for n in (300, 20, 100, 50)]) == [20, 50, 100, 300]


def test_in_order_of_arrival() -> None:
    jobs: list[Job] = [piece(n, arrival=float(n % 7)) for n in (300, 20, 100, 50)]
    assert order(AGEING, jobs, in_order=True) == [jobs[3], jobs[2], jobs[0], jobs[1]]


def test_an_old_long_job_is_passed_only_for_a_while() -> None:
    policy = replace(AGEING, overtake=10.0)
    old = piece(300, arrival=0.0)  # 0.3 of the usual length: passed by what arrives within 3 s
    soon, late = piece(20, arrival=2.0), piece(10, arrival=4.0)
    assert lengths(policy, [late, old, soon]) == [20, 300, 10]


def test_a_list_queues_behind_itself() -> None:
    documents = [piece(40 + i, ahead=0.04 * i) for i in range(4)]
    assert lengths(AGEING, [*documents, piece(100)]) == [40, 41, 100, 42, 43]


def test_documents_above_the_usual_length_pass_one_another_no_more() -> None:
    """Of the first 48, seven in ten have up to 34 tokens: what is longer keeps its order then."""
    queue = JobQueue(replace(AGEING, overtake=1000.0))
    for n in range(48):
        first = piece(n + 1)
        queue.push(first)
        queue.remove(first)
    found = []
    for n in (300, 20, 100, 10, 40):
        queue.push(piece(n))
    while (job := queue.head()) is not None:
        found.append(job.tokens)
        queue.remove(job)
    assert found == [10, 20, 300, 100, 40]


def test_bulk_work_lets_interactive_work_pass() -> None:
    waiting = [piece(10, bulk=True), piece(200, arrival=1.0), piece(300, arrival=6.0)]
    assert lengths(AGEING, waiting) == [200, 10, 300]


def test_a_step_is_not_passed() -> None:
    step = Step(Ticket(2.0), 0.5, 0.0, call=lambda: None)
    medium, short = piece(500, arrival=1.0), piece(2, arrival=3.0)
    assert order(AGEING, [short, medium, step]) == [step, medium, short]


def test_equal_documents_keep_their_order_whatever_is_predicted_of_them() -> None:
    jobs: list[Job] = [piece(100, arrival=float(n)) for n in range(3)]
    for job, work in zip(jobs, (0.12, 0.1, 0.08), strict=True):
        job.work = work
    assert order(AGEING, jobs) == jobs


def test_the_first_ones_are_found_in_their_order() -> None:
    queue = JobQueue(AGEING)
    jobs = [piece(100, arrival=float(n)) for n in range(30)]
    for job in random.Random(1).sample(jobs, len(jobs)):
        queue.push(job)
    queue.remove(jobs[3])
    queue.remove(jobs[5])
    found = [job.ticket.arrival for job in queue.first(16)]
    assert found == [n for n in range(18) if n not in (3, 5)]


def test_jobs_that_come_and_leave_do_not_fill_the_memory() -> None:
    queue = JobQueue(AGEING)
    stays = piece(10)
    queue.push(stays)
    for _ in range(1000):
        job = piece(50)
        queue.push(job)
        queue.remove(job)
    assert len(queue) == 1
    assert max(len(queue._by_due), len(queue._by_arrival)) < 100
    assert queue.head() is stays
