"""What load tests compute: figures from samples, limits, peaks, requests, tables, reports."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest

from benchmarks.documents.making import Document
from benchmarks.load.samples import NO_SOCKETS, TIMED_OUT, Sample, Usage
from benchmarks.load.summary import About, Outcome, summarize
from benchmarks.records import LoadTest, Requests, percentile
from loadtests.html_report import render
from loadtests.limits import parse_limit
from loadtests.peak import find_peak
from loadtests.plan import ALL, Plan, parse_mix
from loadtests.requests import Prepared, check_answer
from loadtests.requests import Requests as Bodies
from loadtests.svg import line_chart
from loadtests.table import describe_progress, remarks, summary_table
from models.errors import ConfigError
from tests.support.results import a_load_test, a_run

REFUSED = "longdoc_rejected_requests_total"
INFO = {
    "model": "m", "bundle_digest": "0" * 64, "attention": {"name": "linear"},
    "engine": {"name": "onnxruntime", "device": "cpu", "precision": "fp32"},
}  # fmt: skip
PLAN = Plan(
    address="http://127.0.0.1:1", service_model="m", model="open", rate=10, seconds=10,
    documents=(Document("one", 1), Document('two "words"', 2)),
)  # fmt: skip


def sample(due: float, seconds: float = 0.1, error: str = "", **values: Any) -> Sample:
    """A request that was answered unless it has an error."""
    about: dict[str, Any] = {"late": 0.0, "tokens": 100, "documents": 1,
                             "status": 0 if error else 200, "kind": "interactive"}  # fmt: skip
    return Sample(due=due, seconds=seconds, error=error, **(about | values))


def figures(*samples: Sample, plan: Plan = PLAN, **values: Any) -> tuple[LoadTest, Requests]:
    """The record of such samples."""
    about: dict[str, Any] = {
        "model": plan.model, "rate": plan.rate, "users": plan.users, "warm_up": plan.warm_up,
        "samples": list(samples), "metrics_before": {REFUSED: 5.0}, "metrics_after": {REFUSED: 5.0},
        "memory": [(0.2, 100), (1.2, 300)], "memory_idle": 90, "memory_peak": 300,
        "usages": [Usage(1.0, 10.0, (0.001,))], "seconds": 10.0, "in_flight": 0, "note": "",
    }  # fmt: skip
    outcome = Outcome(**(about | values))
    return summarize(outcome, About("run", "scenario", INFO, {}))


def test_percentiles_are_those_of_the_raw_times_without_the_warm_up() -> None:
    times = [random.Random(i).expovariate(5) for i in range(500)]
    measured = [sample(i / 50, t) for i, t in enumerate(times)]
    warm_up = [sample(-1.0, 99.0) for _ in range(50)]
    test, raw = figures(*warm_up, *measured)
    assert test.p99 == percentile(times, 99)
    assert test.p50 == percentile(times, 50)
    assert test.requests == 500
    assert test.warm_up_requests == 50
    assert len(raw.due) == 550
    assert sum(s.sent for s in test.by_second) == 500


def test_refused_requests_do_not_make_latency_look_better_but_waits_count() -> None:
    slow = [sample(i / 10, 2.0) for i in range(50)]
    refused = [sample(i / 10, 0.001, "429 Too Many Requests", status=429) for i in range(50)]
    waited = [sample(9.0, 30.0, TIMED_OUT)]
    test, _ = figures(*slow, *refused, *waited, metrics_after={REFUSED: 55.0})
    assert test.p50 == 2.0
    assert test.p99 is not None
    assert test.p99 > 2.0
    assert test.errors == {"429 Too Many Requests": 50, TIMED_OUT: 1}
    assert test.settings["refused"] == {"here": 50, "service": 50}
    assert test.note == ""


def test_a_different_count_of_the_service_is_told() -> None:
    test, _ = figures(sample(1), metrics_after={REFUSED: 8.0})
    assert "counted 3 refusals, 0 came here" in test.note


def test_throughput_counts_what_was_answered_in_the_time() -> None:
    before = [sample(-0.05, 0.1, documents=4, kind="batch")]
    inside = [sample(float(i), 0.5) for i in range(10)]
    after = [sample(9.9, 0.5)]
    test, _ = figures(*before, *inside, *after)
    assert test.answered_per_second == pytest.approx(1.1)
    assert test.documents_per_second == pytest.approx(1.4)
    slow, _ = figures(sample(0, 20.0), sample(0.5, 39.5))  # all of it after the measured time
    assert slow.answered_per_second == pytest.approx(2 / 40)


def test_lengths_fall_into_ranges_that_double() -> None:
    test, _ = figures(*(sample(1, 0.1, tokens=n) for n in (3, 64, 65, 128, 512, 513)))
    assert [(b.low, b.high, b.requests) for b in test.by_length] == [
        (0, 65, 2), (65, 129, 2), (257, 513, 1), (513, 1025, 1),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("samples", "usage", "says"),
    [
        ([sample(1, 0.1)], Usage(9.5, 10, ()), "a core 95% busy"),
        ([sample(1, 0.1, late=0.05)], Usage(1, 10, ()), "late"),
        ([sample(1, 0.1), sample(1, 0, NO_SOCKETS)], Usage(1, 10, ()), "sockets"),
        ([sample(1, 10.0, late=0.05)], Usage(1, 10, ()), ""),  # half a percent of the latency
        ([sample(1, 0.001, late=0.0005)], Usage(1, 10, ()), ""),
    ],
)
def test_a_generator_that_was_the_limit_is_told(
    samples: list[Sample], usage: Usage, says: str
) -> None:
    test, _ = figures(*samples, usages=[Usage(0.1, 10, ()), usage])
    assert test.generator_bottleneck == bool(says)
    assert says in test.note


def test_in_a_closed_load_the_generator_is_late_when_its_clock_oversleeps() -> None:
    plan = PLAN.with_(model="closed", users=3)
    test, _ = figures(sample(1, 0.01), plan=plan, usages=[Usage(1, 10, (0.2,) * 9)])
    assert test.generator_bottleneck
    assert test.users == 3
    assert test.offered_per_second is None


def test_nothing_answered_is_a_record_too() -> None:
    test, _ = figures(sample(1, 0.0, "connection refused"), metrics_after={})
    assert test.p99 is None
    assert "did not answer any more" in test.note
    assert "–" in summary_table([test])
    assert "connection refused" in "".join(remarks(test))
    assert parse_limit("p99=1s").exceeded(test)
    assert "connection refused" in render([test], a_run(), [])


@pytest.mark.parametrize(
    ("text", "most"), [("p99=500ms", 0.5), ("p50=2s", 2), ("errors=1%", 0.01), ("errors=0", 0)]
)
def test_limits_are_read(text: str, most: float) -> None:
    assert parse_limit(text).most == pytest.approx(most)


@pytest.mark.parametrize("text", ["", "p99", "p99=5", "p98=5ms", "errors=5ms", "errors=200%", "=1"])
def test_a_wrong_limit_is_a_sentence(text: str) -> None:
    with pytest.raises(ConfigError, match="--fail-above"):
        parse_limit(text)


def test_limits_judge_a_test() -> None:
    test, _ = figures(sample(1, 0.2), sample(2, 0.0, "connection refused"))
    assert not parse_limit("p99=200ms").exceeded(test)
    assert "above 199 ms" in parse_limit("p99=199ms").exceeded(test)
    assert "50.00%" in parse_limit("errors=49%").exceeded(test)
    assert not parse_limit("errors=50%").exceeded(test)


@pytest.mark.parametrize("true_peak", [0.3, 7.0, 19.9, 20.1, 400.0])
def test_the_peak_is_found_from_below_and_above(true_peak: float) -> None:
    tried: list[float] = []

    def keeps(rate: float) -> bool:
        tried.append(rate)
        return rate <= true_peak

    found = find_peak(keeps, 20.0)
    assert found.kept <= true_peak < (found.missed or 0)
    assert (found.missed or 0) <= 1.1 * found.kept
    assert len(tried) == found.trials == len(set(tried))


def test_one_disturbance_does_not_end_the_search_low() -> None:
    tried: list[float] = []

    def keeps(rate: float) -> bool:
        tried.append(rate)
        return rate <= 30 and len(tried) != 2  # the second trial is disturbed

    assert find_peak(keeps, 10.0, again=False).kept < 20
    tried.clear()
    assert find_peak(keeps, 10.0, again=True).kept == pytest.approx(30, rel=0.1)


def test_the_search_ends_when_nothing_or_everything_is_kept() -> None:
    assert find_peak(lambda _: False, 8.0, most_trials=4).kept == 0
    best = find_peak(lambda _: True, 8.0, most_trials=4)
    assert (best.kept, best.missed) == (64.0, None)


@pytest.mark.parametrize("kind", list(ALL))
def test_every_kind_of_request_is_what_the_service_takes(kind: str) -> None:
    request = Bodies(PLAN.with_(batch_size=3, bulk_size=2), random.Random(0)).of_kind(kind)
    if kind == "bulk":
        lines = [json.loads(line) for line in request.body.splitlines()]
        assert [line["id"] for line in lines] == [0, 1]
        texts = [line["input"] for line in lines]
    elif kind == "v2":
        texts = json.loads(request.body)["inputs"][0]["data"]
    else:
        body = json.loads(request.body)
        assert body["timeout_ms"] == 30_000
        assert ("evidence" in body) == (kind == "evidence")
        texts = body["input"] if kind == "batch" else [body["input"]]
    known = {d.text: d.tokens for d in PLAN.documents}
    assert len(texts) == request.documents == {"batch": 3, "bulk": 2}.get(kind, 1)
    assert request.tokens == sum(known[text] for text in texts)


@pytest.mark.parametrize(
    ("kind", "status", "content", "counts", "says"),
    [
        ("interactive", 200, b'{"results": [{"label": "a"}]}', 200, ""),
        ("interactive", 200, b'{"results": []}', 200, "wrong answer"),
        ("interactive", 200, b"<html>", 200, "wrong answer"),
        ("interactive", 429, b"", 429, "429 Too Many Requests"),
        ("interactive", 799, b"", 799, "799"),
        ("v2", 200, b'{"outputs": [{"data": ["a"]}]}', 200, ""),
        ("v2", 200, b'{"outputs": []}', 200, "wrong answer"),
        ("bulk", 200, b'{"id": 0, "result": {}}\n', 200, ""),
        ("bulk", 200, b"", 200, "wrong answer"),
        ("bulk", 200, b'{"id": 0, "error": {"status": 504}}', 504, "line: 504 Gateway Timeout"),
    ],
)
def test_answers_are_judged(kind: str, status: int, content: bytes, counts: int, says: str) -> None:
    request = Prepared(kind, "/", "", b"", 1, 1)
    assert check_answer(request, status, content) == (counts, says)


def test_plans_travel_as_text() -> None:
    assert Plan.from_json(PLAN.to_json()) == PLAN
    assert parse_mix("interactive=8, batch=1,v2") == {"interactive": 8, "batch": 1, "v2": 1}
    assert parse_mix("all") == ALL


@pytest.mark.parametrize("text", ["", "x", "batch=0", "batch=-1", "batch=a", "v2,v2", "batch=1.5"])
def test_a_wrong_mix_is_a_sentence(text: str) -> None:
    with pytest.raises(ConfigError, match="--mix"):
        parse_mix(text)


def test_the_table_says_once_what_all_loads_share() -> None:
    tests = [a_load_test(offered)[0] for offered in (10.0, 20.0)]
    table = summary_table(tests)
    assert table.count("nystromformer") == 1
    assert "10/s" in table
    assert "20/s" in table
    progress = {"clock": -2.0, "per_second": 3.0, "p50": None, "p99": 0.25, "errors": 1,
                "in_flight": 2, "memory": 5_000_000}  # fmt: skip
    assert describe_progress(progress, 30).startswith("warm-up, 2 s left  3.0/s  p50 –  p99 250.0")


def test_charts_hold_their_points_and_nothing_is_drawn_of_nothing() -> None:
    assert line_chart({}, x="x", y="y") == ""
    assert line_chart({"a": [(0, 0)]}, x="x", y="y", log_y=True) == ""
    svg = line_chart({"<a>": [(1, 5), (10, 5)], "b": [(1, 1)]}, x="x", y="y", log_x=True)
    assert svg.count("<polyline") == 2
    assert "&lt;a&gt;" in svg
    assert "nan" not in svg


def test_a_report_escapes_what_it_shows() -> None:
    test, _ = a_load_test(10.0, note="<script>alert(1)</script>")
    html = render([test], a_run(), ["<b>"])
    assert "<script>" not in html
    assert "&lt;script&gt;" in html


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ((512, 4096, 16384), ["512", "4,096", "16,384"]),
        ((512, 520, 16384), ["1,000", "2,000", "5,000", "10,000"]),
    ],
)
def test_the_axis_names_the_lengths_that_were_measured_or_round_ones(
    values: tuple[int, ...], labels: list[str]
) -> None:
    svg = line_chart({"a": [(x, 1) for x in values]}, x="tokens", y="y", log_x=True)
    axis = [text for text in re.findall(r'text-anchor="middle">([^<]+)<', svg) if text[0].isdigit()]
    assert axis == labels


def test_a_narrow_range_of_latencies_has_more_than_one_mark() -> None:
    svg = line_chart({"a": [(0, 8.1), (1, 13.2)]}, x="seconds", y="ms", log_y=True)
    assert len(re.findall(r'text-anchor="end">', svg)) >= 3


def test_a_sweep_is_drawn_with_a_line_for_each_service() -> None:
    tests = [
        a_load_test(10.0, attention=attention, length=length, scenario=f"{length} tokens")[0]
        for attention in ("softmax", "linear")
        for length in (512, 4096)
    ]
    html = render(tests, a_run(), [])
    assert html.count("<title>softmax</title>") == html.count("<title>linear</title>") == 2
    assert html.index("Against document length") < html.index("<table>")
    assert html.count("<details><summary><h2>") == 0  # each has refusals to tell of
    calm = [test.model_copy(update={"errors": {}, "note": ""}) for test in tests]
    assert render(calm, a_run(), []).count("<details><summary><h2>") == len(calm)
    assert "<details open><summary><h2>" in render(calm[:1], a_run(), [])


def test_several_loads_at_a_length_are_lines_of_their_own() -> None:
    tests = [
        a_load_test(offered, length=length, scenario=f"{length} tokens")[0]
        for offered in (10.0, 20.0)
        for length in (512, 4096)
    ]
    html = render(tests, a_run(), [])
    assert html.count("nystromformer · onnxruntime:cpu · 10/s</title>") == 2
    assert html.count("nystromformer · onnxruntime:cpu · 20/s</title>") == 2


def test_a_rate_that_was_tried_again_is_drawn_once() -> None:
    tests = [a_load_test(offered)[0] for offered in (10.0, 20.0)]
    again = tests[1].model_copy(update={"p99": 99.0})
    html = render([*tests, again], a_run(), [])
    chart = html[html.index("Latency against offered load") : html.index("<table>")]
    assert chart.count("<circle") == 2 * 4
    other = a_load_test(30.0, scenario="512 tokens")[0]
    assert render([*tests, other], a_run(), []).count("Latency against offered load") == 1
