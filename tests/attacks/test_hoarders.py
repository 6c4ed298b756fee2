"""What a caller can make the service keep is bounded, and is given back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.attacks.hoarders import HOARDERS
from tests.attacks.target import Target, attacked
from tests.support.serving import wait_until

_SHORT = [
    "unread answers",
    "unread problems",
    "unread stream",
    "endless trailers",
    "endless head",
    "wrong bodies, 30 times 8 MB",
]


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    with attacked(queue_seconds="600") as running:
        for _ in range(50):
            assert running.serves()
        yield running


@pytest.mark.parametrize("name", _SHORT)
def test_memory_stays_within_its_bound(target: Target, name: str) -> None:
    _hoard(target, name)


@pytest.mark.attack
@pytest.mark.parametrize("name", [name for name in HOARDERS if name not in _SHORT])
def test_so_it_does_with_all_the_others(target: Target, name: str) -> None:
    _hoard(target, name)


def _hoard(target: Target, name: str) -> None:
    call, megabytes = HOARDERS[name]
    before = target.resident()
    with target.watched() as watched, target.most_memory() as most:
        call(target)
    assert watched.failures == 0
    assert watched.longest < 1.0
    assert most[0] - before < megabytes << 20
    wait_until(lambda: target.metrics()["longdoc_queue_depth"] == 0, 30)
    wait_until(lambda: target.resident() - before < 64 << 20, 10)
    assert target.serves()
