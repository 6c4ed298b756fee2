"""The comparison's parts: loads, settings, verdicts, requests."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from benchmarks.load.samples import Sample
from benchmarks.peers.figures import waits_of
from benchmarks.peers.registry import SERVERS, Server, find_servers
from benchmarks.peers.settings import best_settings
from benchmarks.peers.verdicts import ahead
from benchmarks.peers.workload import Plan, Workload
from benchmarks.records import LoadTest
from models.errors import ConfigError
from tests.support.results import a_load_test
from tests.support.small_bundle import shared_bundle

PLAN = Plan("tiny", rounds=1, documents=40, behind_seconds=4, bursts_seconds=8)


@pytest.fixture(scope="module")
def folder() -> Path:
    """A small bundle."""
    return shared_bundle().path


@pytest.fixture(scope="module")
def workload(folder: Path) -> Workload:
    return Workload(folder, PLAN, longest=2000)


def test_every_server_and_run_gets_the_same_load(workload: Workload, folder: Path) -> None:
    again = Workload(folder, PLAN, longest=2000)
    limits = {"behind": 50.0, "mixed": 50.0}
    for name in ("fixed", "mixed", "behind", "bursts"):
        assert workload.load(name, 1, limits) == again.load(name, 1, limits)
    first, second = (workload.load("behind", number, limits) for number in (1, 2))
    assert first.dues != second.dues


def test_one_in_twenty_is_long_and_the_others_are_short(workload: Workload) -> None:
    load = workload.load("behind", 1, {"behind": 500.0})
    tokens = [document.tokens for document in load.documents]
    assert sum(each > 1900 for each in tokens) == len(tokens) // 20
    assert sum(each < 512 for each in tokens) == len(tokens) - len(tokens) // 20
    assert load.rate == 300.0
    assert len(load.order) == len(load.dues) == pytest.approx(300 * PLAN.behind_seconds, rel=0.2)


def test_bursts_come_in_the_first_fifth(workload: Workload) -> None:
    load = workload.load("bursts", 1, {"mixed": 100.0})
    assert load.dues
    assert all(due % 4.0 <= 0.8 for due in load.dues)
    assert len(load.dues) == pytest.approx(50 * PLAN.bursts_seconds, rel=0.2)


def test_documents_sent_alone_have_all_lengths(workload: Workload) -> None:
    alone = workload.alone
    assert alone.clients == 1
    chosen = [alone.documents[index].tokens for index in alone.order]
    everything = [document.tokens for document in workload.documents("mixed")]
    assert max(chosen) == max(everything)
    assert len(chosen) == len(everything) == PLAN.alone


@pytest.mark.parametrize(
    ("theirs", "ours", "more", "expected"),
    [
        (103, 100, True, True),
        (101, 100, True, False),
        (97, 100, False, True),
        (99, 100, False, False),
        (math.inf, 1.0, False, False),
        (1.0, math.inf, False, True),
        (0.0, 0.0, False, False),
    ],
)
def test_ahead_means_better_by_more_than_noise(
    theirs: float, ours: float, more: bool, expected: bool
) -> None:
    assert ahead(theirs, ours, more) is expected


def trial(settings: dict[str, object], **values: object) -> LoadTest:
    """A trial of LitServe under a saturating load unless other values say otherwise."""
    about: dict[str, object] = {
        "sweep": "settings", "server": "litserve", "scenario": "mixed", "model": "closed",
        "errors": {}, "settings": {"server": settings},
    }  # fmt: skip
    return a_load_test(**(about | values))[0]  # type: ignore[arg-type]


def test_settings_are_chosen_for_each_load_by_its_own_figures() -> None:
    (server,) = find_servers("litserve")
    single, _, eight, _, four, _ = (dict(each) for each in server.tried)
    tests = [
        trial(single, answered_per_second=132.0),
        trial(eight, answered_per_second=50.0),
        trial(single, scenario="fixed", answered_per_second=228.0),
        trial(eight, scenario="fixed", answered_per_second=240.0),
        trial(four, scenario="fixed", answered_per_second=300.0, errors={"503": 3}),
        trial(single, scenario="behind", model="open", p50=0.01, p99=0.4),
        trial(four, scenario="behind", model="open", p50=0.02, p99=0.1),
    ]
    assert best_settings(server, "mixed", tests) == single  # batching has no advantage by rule
    assert best_settings(server, "fixed", tests) == eight  # the fastest failed requests
    assert best_settings(server, "behind", tests) == four
    assert best_settings(server, "bursts", tests) == server.tried[0]  # nothing was tried
    level = trial(single, scenario="fixed", answered_per_second=236.0)
    assert best_settings(server, "fixed", [*tests, level]) == single  # within 2%: the first tried


def test_waiting_counts_in_times_of_the_documents_own_time_by_length() -> None:
    def sample(tokens: int, seconds: float, error: str = "") -> Sample:
        return Sample(0.0, seconds, 0.0, tokens, 1, 0 if error else 200, "interactive", error)

    own = {100: 0.01, 1000: 0.1}
    found = waits_of([sample(100, 0.03), sample(1000, 0.05), sample(1000, 0.2, "lost")], own)
    assert found[128] == pytest.approx((2.0, 2.0))
    assert found[2048] == (0.0, math.inf)
    assert waits_of([sample(5, 1.0)], own) == {}  # no document of that length ran alone


@pytest.mark.parametrize("server", SERVERS, ids=lambda server: server.name)
def test_a_request_is_whole_and_says_what_it_holds(server: Server) -> None:
    head, _, body = server.request("Grüße").partition(b"\r\n\r\n")
    assert head.startswith(b"POST /")
    assert f"Content-Length: {len(body)}".encode() in head
    assert "Grüße" in json.dumps(json.loads(body), ensure_ascii=False)


def test_an_unknown_server_is_named() -> None:
    with pytest.raises(ConfigError, match="unknown server 'apache'"):
        find_servers("longdoc,apache")
