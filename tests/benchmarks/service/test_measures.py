"""The measurements of the service, from process start to page, and their figures."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.environment import begin_run
from benchmarks.load.samples import Sample
from benchmarks.servers.bundle import read_bundle
from benchmarks.service.measures import FLOOD, MEASURES, MEMORY, Measurements, Plan
from benchmarks.service.report import page_of, recovered_after
from benchmarks.store import Store
from tests.support.small_bundle import shared_bundle

pytestmark = pytest.mark.slow

PLAN = Plan("quick", 1, 20, 1, 0.3, 2, (64, 400))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    store = Store(tmp_path_factory.mktemp("service") / "results.sqlite")
    bundle = read_bundle(shared_bundle().path)
    for name, measure in MEASURES.items():
        run = begin_run(f"service-{name}", "test", "test", load_before=0.0)
        store.append(run)
        measure(Measurements(bundle, PLAN, store, run.run, lambda _: None))
        store.append(run.model_copy(update={"finished": run.started}))
    return store


def test_every_load_is_stored_with_its_raw_requests(store: Store) -> None:
    tests = dict(store.load().load_tests)
    assert {test.scenario for test in tests.values()} == {
        *(f"overhead {case}" for case in ("512", "4096", "mixed")),
        *(f"overload: {part}" for part in
          ("peak before", "calm before", "flood", "calm after", "peak after")),
    }  # fmt: skip
    for number, test in tests.items():
        raw = store.requests(number)
        assert raw is not None
        assert len(raw.due) == test.requests
        assert set(test.settings["cores"]) == {"server", "generator", "others"}
    peak, flood = (
        next(t for t in tests.values() if t.scenario == f"overload: {part}")
        for part in ("peak before", "flood")
    )
    assert flood.offered_per_second == pytest.approx(FLOOD * peak.answered_per_second)


def test_memory_is_predicted_and_read_by_length(store: Store) -> None:
    figures = [figure for figure in store.load().figures if figure.name == MEMORY]
    assert [figure.conditions["tokens"] for figure in figures] == pytest.approx([64, 400], abs=8)
    for figure in figures:
        before, predicted, peak, after = figure.values
        assert 20 << 20 < before <= peak
        assert predicted >= 0
        assert after <= 1.5 * peak


def test_the_page_shows_every_measure(store: Store, tmp_path: Path) -> None:
    page = page_of(store)
    assert not re.search(r"<!-- [A-Z_]+ -->", page)
    for text in ("| 512 |", "| 4096 |", "| mixed |", "answered in time", "first 200", "predicted",
                 "A quick look"):  # fmt: skip
        assert text in page
    empty = page_of(Store(tmp_path / "none.sqlite"))
    assert empty.count("Nothing is stored") == len(MEASURES)


@pytest.mark.parametrize(
    ("slow", "after"),
    [([], 0.0), (range(10), 10.0), ([50], 0.0), (range(100), float("inf"))],
)
def test_recovery_is_when_slow_answers_are_rare_again(slow: Sequence[int], after: float) -> None:
    samples = [
        Sample(float(at), 1.0 if at in slow else 0.01, 0.0, 64, 1, 200, "interactive", "")
        for at in range(100)
    ]
    found = recovered_after(samples, bound=0.1)
    assert found == pytest.approx(after, abs=6)  # a few of the slow ones may be the usual ones
