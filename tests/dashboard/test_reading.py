"""Windows are counted as the service cuts them; predictions are held against load tests."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.records import LoadTest
from dashboard.comparison import beside_other_servers, grouped_rows, newest_first
from dashboard.costs import cost_rows
from dashboard.load_sweeps import against_length
from dashboard.reading import (
    describe_reading,
    document_cost,
    held_against_load_tests,
    in_windows,
    service_memory,
    typical_error,
    windows,
)
from models.windows import OVERLAP, cut_windows
from tests.support.results import a_load_test, a_measurement


@pytest.mark.parametrize("limit", [1000, 2048, 4096])
@pytest.mark.parametrize("length", [10, 1000, 1001, 5000, 16_384, 50_000])
def test_windows_are_those_that_the_service_cuts(length: int, limit: int) -> None:
    count, size = windows(length, limit)
    if length <= limit:
        assert (count, size) == (1, length)
        assert describe_reading(length, limit) == "whole"
        return
    cut = cut_windows(length, lambda _: True, limit, min(OVERLAP, limit // 2))
    assert count == len(cut)
    assert size == max(end - start for start, end in cut)


def test_the_same_document_costs_the_same_on_every_page() -> None:
    """Cost by length in windows, and what Choose and the glance add up."""
    records = [a_measurement("softmax", n, n * n * 1e-8) for n in (1024, 2048, 4096, 8192)]
    points = {r.length: r.median * 1e3 for r in records}
    rows = in_windows(cost_rows(records), {"softmax": 2048})
    assert [row["latency"] for row in rows] == pytest.approx(
        [document_cost(points, n, 2048) for n in (1024, 2048, 4096, 8192)]
    )
    assert {row["title"] for row in rows} == {"Softmax, windows of 2,048"}
    whole = in_windows(cost_rows(records), {"softmax": 8192})
    assert whole == cost_rows(records)


def load_test(length: int, memory: int, **values: Any) -> LoadTest:
    test, _ = a_load_test(
        model="closed",
        offered_per_second=None,
        users=2,
        length=length,
        attention="linear",
        service_memory_bytes=memory,
        p50=length / 1e5 * 1.1,
        **values,
    )
    return test


def test_predictions_are_held_against_load_tests() -> None:
    records = [
        a_measurement("linear", n, n / 1e5, baseline_bytes=10**8, peak_bytes=n * 1000)
        for n in (1000, 10_000)
    ]
    tests = [load_test(n, 10**8 + 2 * n * 1000 + 87_000_000) for n in (1000, 5000, 10_000)]
    checks = held_against_load_tests(tests, records, {})
    assert [row["read"] for row in checks] == ["whole"] * 3
    assert service_memory(checks) == pytest.approx(87e6)
    assert typical_error(checks, "predicted ms", "measured ms") == pytest.approx(0.1 / 1.1)
    assert service_memory([]) == 0


def test_repeats_are_one_row_and_ours_come_first() -> None:
    peers = [
        a_load_test(20.0, server=server, sweep="peers", scenario="mixed", p99=seconds,
                    created=f"2026-01-0{day}T00:00:00+00:00")[0]
        for day, (server, seconds) in enumerate(
            [("longdoc", 0.1), ("longdoc", 0.3), ("other", 0.5), ("other", 0.9), ("limit", 0.1)], 1
        )
    ]  # fmt: skip
    rows = grouped_rows(peers)
    assert [row["runs"] for row in rows] == [2, 2]
    assert rows[0]["service"].startswith("longdoc")
    assert rows[0]["p99"] == pytest.approx(200)
    assert newest_first(peers)[0].created.startswith("2026-01-02")
    servers = beside_other_servers(peers)
    assert {row["server"]: row["p99 ms"] for row in servers} == pytest.approx(
        {"longdoc": 200, "other": 700}
    )


def test_a_sweep_says_what_is_read_in_windows() -> None:
    tests = [load_test(n, 10**8, bundle={"name": "e", "digest": "0" * 64, "weights": "trained"})
             for n in (512, 4096)]  # fmt: skip
    figure = against_length(tests, "memory", {"e": 2048})
    assert list(figure.looks) == ["Linear (ELU), windows of 2,048"]
    figure = against_length(tests, "memory", {"e": 4096})
    assert list(figure.looks) == ["Linear (ELU)"]
