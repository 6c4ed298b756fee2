"""Sweeps of load tests on the dashboard."""

from __future__ import annotations

from pathlib import Path

from streamlit.testing.v1 import AppTest

from benchmarks.records import LoadTest, RequestKind
from benchmarks.store import Store
from dashboard.load_charts import kind_rows
from dashboard.load_charts import test_rows as rows_of
from dashboard.load_sweeps import against_length, length_sweeps, peak_of, rate_sweeps
from tests.support.results import a_load_test, a_run

LENGTHS = (512, 4096, 16384)


def at_length(attention: str, length: int, sweep: str = "lengths") -> LoadTest:
    """A test of a sweep over lengths."""
    test, _ = a_load_test(
        sweep=sweep, attention=attention, length=length, scenario=f"{length} tokens",
        model="closed", users=2, offered_per_second=None, documents_per_second=3.0,
        service_memory_bytes=100_000_000 + 1000 * length,
    )  # fmt: skip
    return test


def trial(rate: float, *, kept: bool) -> LoadTest:
    """A test of a search for the peak."""
    return a_load_test(rate, sweep="peak", settings={"peak": "p99=250ms", "kept": kept})[0]


def test_sweeps_are_found_among_other_tests() -> None:
    alone = a_load_test(7.0, sweep="", scenario="alone")[0]
    lengths = [at_length(a, n) for a in ("linear", "softmax") for n in LENGTHS]
    other = [at_length("linear", n, "another") for n in LENGTHS[:2]]
    single = [at_length("linear", 512, "single")]
    rates = [trial(10.0, kept=True), trial(40.0, kept=False), trial(20.0, kept=True)]
    tests = [alone, *lengths, *other, *single, *rates]
    assert [len(group) for group in length_sweeps(tests).values()] == [6, 2]
    [sweep] = rate_sweeps(tests).values()
    assert [test.offered_per_second for test in sweep] == [10.0, 20.0, 40.0]
    assert "20 requests a second kept p99 under 250ms" in peak_of(sweep)
    assert "No rate" in peak_of([trial(10.0, kept=False)])
    assert peak_of([alone]) == ""


def test_a_figure_against_length_has_a_line_for_each_attention() -> None:
    tests = [at_length(a, n) for a in ("linear", "softmax") for n in LENGTHS]
    figure = against_length(tests, "memory")
    assert len(figure.looks) == 2
    assert [row["memory"] for row in figure.rows[:2]] == [100.512, 104.096]
    assert figure.chart.to_dict()
    assert against_length(tests, "p99").chart.to_dict()


def test_rows_say_what_a_reader_must_know() -> None:
    kind = RequestKind(
        request="bulk", requests=3, documents=96, errors=1, p50=0.1, p95=0.2, p99=0.3
    )
    test, _ = a_load_test(generator_bottleneck=True, note="odd", by_request=(kind, kind))
    [row] = rows_of([test])
    assert row["note"] == "the load generator was the bottleneck; odd"
    assert [row["caller"] for row in kind_rows([("name", test)])] == ["bulk", "bulk"]


def test_the_page_shows_sweeps_over_lengths_and_rates(tmp_path: Path) -> None:
    store = Store(tmp_path / "results.sqlite")
    store.append(a_run("load-1", load_before=9.0))
    for attention in ("linear", "softmax"):
        for length in LENGTHS:
            store.append(at_length(attention, length))
    for rate, kept in ((10.0, True), (20.0, False)):
        store.append(trial(rate, kept=kept))
    page = AppTest.from_string(
        "from dashboard.views import loads\nloads.draw()\n", default_timeout=60
    )
    page.session_state["stores"] = (store.path,)
    page.run()
    assert not page.exception
    headings = [each.value for each in page.subheader]
    assert "The service against document length" in headings
    assert "Latency against offered load" in headings
    said = "\n".join(str(each.value) for each in (*page.markdown, *page.caption))
    assert "Peak: 10 requests a second" in said
    assert "busy" in said
    page.segmented_control(key="figure").set_value("p99").run()
    assert not page.exception
