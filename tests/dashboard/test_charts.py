"""Figures are computed rightly and charts draw them, without Streamlit."""

from __future__ import annotations

import itertools
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.engine.papers import LINFORMER_GAINS
from benchmarks.records import UNFUSED
from dashboard.accuracy import (
    Classifier,
    accuracy_rows,
    baseline_of,
    pareto,
    read_rows,
    typical_length,
)
from dashboard.accuracy_charts import accuracy_chart, fidelity_chart, read_chart
from dashboard.chart_parts import Figure, log_ticks, to_png, without_legend
from dashboard.choice_charts import choice_chart, score_chart
from dashboard.choosing import Wanted, rank
from dashboard.cost_charts import METRICS, cost_chart, gains_chart
from dashboard.costs import cost_rows, crossovers, interpolate, left_out, paper_gains
from dashboard.data import Results, fidelity_rows, read_classifiers, read_results
from dashboard.highlight import highlight
from dashboard.load_charts import against_load, by_length, live_chart, over_time
from dashboard.looks import legend_html
from dashboard.report import make_report
from dashboard.series import APPEARANCE, looks_of, title
from models.mechanisms import ATTENTIONS
from tests.support.results import (
    a_load_test,
    a_measurement,
    fidelity,
    fill,
    fill_bundles,
    measurements,
)


def test_rows_hold_the_figures() -> None:
    record = a_measurement("linear", 1000, samples_seconds=tuple(i / 100 for i in range(1, 12)))
    (row,) = cost_rows([record])
    assert row["latency"] == pytest.approx(60)
    assert row["latency_low"] == pytest.approx(20)
    assert row["latency_high"] == pytest.approx(100)
    assert row["throughput"] == pytest.approx(1000 / 0.06)
    assert row["memory"] == pytest.approx(4.096)
    assert row["title"] == "Linear (ELU)"


def test_a_crossing_is_read_off_between_two_lengths() -> None:
    seconds = {"softmax": {512: 1.0, 1024: 4.0, 2048: 16.0}, "linear": {512: 2.0, 1024: 4.0}}
    seconds["linear"][2048] = 8.0
    seconds["linear"][512] = 2.0
    records = [a_measurement(a, n, s) for a, by in seconds.items() for n, s in by.items()]
    (row,) = crossovers(records)
    assert row["length"] == 2048  # at 1,024 they are equal, which is not faster
    assert row["at"] == pytest.approx(1024)
    assert row["latency"] == pytest.approx(4000)
    assert row["gain"] == pytest.approx(2)
    assert row["words"] == "from 2,048"


@pytest.mark.parametrize(
    ("own", "words"),
    [
        ({512: 9.0, 1024: 9.0}, "not up to 1,024"),
        ({512: 0.5, 1024: 0.5}, "at all lengths from 512"),
        ({512: 0.5, 1024: 9.0}, "not up to 1,024"),
    ],
)
def test_crossings_that_are_none(own: dict[int, float], words: str) -> None:
    records = [a_measurement("softmax", n, 1.0) for n in (512, 1024)]
    records += [a_measurement("linear", n, s) for n, s in own.items()]
    (row,) = crossovers(records)
    assert row["words"] == words
    assert row["at"] is None


def test_gains_stand_beside_the_papers() -> None:
    records = [
        a_measurement(UNFUSED, 1024, 6.0, peak_bytes=900),
        a_measurement("softmax", 1024, 3.0, peak_bytes=300),
        a_measurement("linformer", 1024, 2.0, peak_bytes=100),
    ]
    rows = {row["length"]: row for row in paper_gains(records, "onnxruntime", "fp32")}
    assert list(rows) == list(LINFORMER_GAINS)
    assert rows[1024] == {
        "length": 1024, "paper_time": 1.7, "our_time": 3.0, "fused_time": 1.5,
        "paper_memory": 3.0, "our_memory": 9.0, "fused_memory": 3.0,
    }  # fmt: skip
    assert rows[512]["our_time"] is None


def test_lines_are_read_between_and_beyond_their_points() -> None:
    points = {100: 1.0, 1000: 10.0, 10_000: 1000.0}
    assert interpolate(points, 1000) == pytest.approx(10)
    assert interpolate(points, 300) == pytest.approx(3)
    assert interpolate(points, 20_000) == pytest.approx(4000)
    assert interpolate({100: 2.0}, 200) == pytest.approx(4)
    assert interpolate({}, 200) is None


def test_what_was_left_out_says_why() -> None:
    rows = left_out(measurements())
    assert rows
    assert all(row["reason"] == "predicted to need too much" for row in rows)


def test_the_front_holds_those_that_none_beats_in_both() -> None:
    rows = [
        {"name": name, "latency": latency, "accuracy": accuracy}
        for name, latency, accuracy in (
            ("fast", 1.0, 0.7), ("slow and worse", 2.0, 0.6), ("good", 3.0, 0.9),
            ("slow", 4.0, 0.9), ("untimed", None, 0.99),
        )
    ]  # fmt: skip
    assert pareto(rows) == {"fast", "good"}


def test_bundles_give_accuracy_baseline_and_length(tmp_path: Path) -> None:
    fill_bundles(tmp_path)
    (tmp_path / "elife-linear" / "manifest.json").write_text("{")  # a damaged one is left out
    found = read_classifiers(tmp_path)
    assert len(found) == 2 * len(ATTENTIONS) - 1
    elife = [each for each in found if each.dataset == "elife"]
    assert typical_length(elife) == (12_000, "average")
    assert typical_length([Classifier("x", "x", "linear", 1, {"median_tokens": 7})]) == (
        7,
        "median",
    )
    assert baseline_of(elife) == ("TF-IDF + logistic regression", 0.73, 0.7)
    rows = accuracy_rows(elife, {"softmax": {1000: 5.0}}, 12_000)
    # In four windows, which share 256 tokens, since the bundle reads 4,096 at once.
    expected = 4 * (12_000 + 3 * 256) / 4 / 1000 * 5.0
    assert next(r for r in rows if r["attention"] == "softmax")["latency"] == pytest.approx(
        expected
    )
    assert [r["read"] for r in read_rows(elife)][:4] == ["512", "2,048", "8,192", "all"]


def figures() -> dict[str, Figure]:
    rows, crossings = cost_rows(measurements()), crossovers(measurements())
    ours = [r for r in rows if r["engine"] == "onnxruntime"]
    gains = paper_gains(measurements(), "onnxruntime", "fp32")
    accuracy = [
        {"name": n, "attention": n, "title": title(n), "accuracy": 0.7, "macro_f1": 0.6,
         "low": 0.6, "high": 0.8, "latency": 10.0 + i, "front": i == 0}
        for i, n in enumerate(ATTENTIONS.names())
    ]  # fmt: skip
    reads = [
        {"attention": n, "title": title(n), "read": read, "tokens": tokens, "accuracy": 0.7,
         "macro_f1": 0.6}
        for n in ATTENTIONS.names() for read, tokens in (("512", 512), ("all", math.inf))
    ]  # fmt: skip
    tests = [(f"test {rate}", a_load_test(rate)[0]) for rate in (10.0, 20.0)]
    history = [{"at": -i, "requests": 1.0, "errors": None} for i in range(5)]
    return {
        **{metric: cost_chart(ours, metric, crossings) for metric in METRICS},
        "gains": gains_chart(gains, "memory"),
        "accuracy": accuracy_chart(accuracy, "accuracy", ("TF-IDF", 0.73)),
        "read": read_chart(reads, "macro_f1"),
        "fidelity": fidelity_chart(fidelity_rows(Results({}, {}, [], fidelity(), []))),
        "load": against_load([test for _, test in tests]),
        "by_length": by_length(tests, "p95"),
        "over_time": over_time(tests),
        "choices": choice_chart(rank(measurements(), Wanted([900], 50.0, None, 2), {}), 50.0),
        "scores": score_chart(
            [{"service": s, "label": n, "score": 0.5} for s in ("one", "two") for n in "ab"]
        ),
        "live": live_chart(history, {"requests": "requests", "errors": "errors"}, "Requests"),
    }


@pytest.mark.parametrize("name", list(figures()))
def test_every_chart_is_drawn(name: str) -> None:
    figure = figures()[name]
    spec = figure.chart.to_dict()  # checks itself against Vega-Lite's schema
    assert to_png(figure.chart).startswith(b"\x89PNG")
    text = json.dumps(spec, ensure_ascii=False)
    assert "NaN" not in text
    assert "Infinity" not in text
    for line in figure.looks:
        if not line.startswith("TF-IDF"):
            assert line in text
    assert "legend" not in json.dumps(without_legend(figure.chart).to_dict()).replace(
        '"legend": null', ""
    )
    assert figure.rows


def test_all_attentions_are_drawn_in_their_own_look() -> None:
    spec = json.dumps(figures()["latency"].chart.to_dict(), ensure_ascii=False)
    for attention, look in APPEARANCE.items():
        assert title(attention) in spec
        assert look.colour in spec
    assert set(APPEARANCE) == {UNFUSED, *ATTENTIONS.names()}


def test_rings_stand_where_lines_cross() -> None:
    layers = figures()["latency"].chart.to_dict()["layer"]
    rings = [layer for layer in layers if layer["mark"].get("size") == 260]
    assert len(rings) == 1
    assert len(figures()["memory"].chart.to_dict()["layer"]) == 2


# Simulation of colour blindness in linear RGB, by Machado, Oliveira and Fernandes (2009).
_BLIND = {
    "normal": np.eye(3),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
         [-0.011820, 0.042940, 0.968881]]
    ),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
         [-0.003882, -0.048116, 1.051998]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
         [0.004733, 0.691367, 0.303900]]
    ),
}  # fmt: skip


def _lab(colour: str, vision: str) -> Any:
    rgb = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    seen = np.clip(_BLIND[vision] @ linear, 0, 1)
    to_xyz = np.array(
        [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    )
    xyz = to_xyz @ seen / np.array([0.9505, 1.0, 1.089])
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("vision", list(_BLIND))
def test_attentions_are_told_apart_by_everyone(vision: str) -> None:
    for one, two in itertools.combinations(APPEARANCE.values(), 2):
        apart = np.linalg.norm(_lab(one.colour, vision) - _lab(two.colour, vision))
        assert (one.dash, one.shape) != (two.dash, two.shape)
        assert apart > 10 or (one.dash != two.dash and one.shape != two.shape), (one, two)
    for look in APPEARANCE.values():  # readable on white and on the dark theme's black
        lightness = _lab(look.colour, vision)[0]
        assert 25 < lightness < 80


def test_the_legend_names_every_line_and_runs_no_code() -> None:
    html = legend_html(looks_of(APPEARANCE) | {"<script>x</script>": APPEARANCE["linear"]})
    assert html.count("<img") == len(APPEARANCE) + 1
    assert "∞-former" in html
    assert "<script>" not in html


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([10, 1000], [10, 20, 50, 100, 200, 500, 1000]),
        ([1, 1e5], [1, 10, 100, 1e3, 1e4, 1e5]),
        ([None, 0], [1]),
        ([30, 40], [30, 40, 50]),
    ],
)
def test_ticks_are_round(values: list[float | None], expected: list[float]) -> None:
    assert log_ticks(values) == pytest.approx(expected)


@given(st.lists(st.floats(1e-3, 1e9), min_size=1, max_size=5))
def test_an_axis_has_at_least_three_ticks(values: list[float]) -> None:
    ticks = log_ticks(values)
    assert len(ticks) >= 3
    assert min(values) * 0.79 <= ticks[0]
    assert ticks[-1] <= max(values) * 1.26


def test_evidence_is_marked_and_nothing_in_it_is_code() -> None:
    text = "<b>Cells</b> & plants. " * 3
    html = highlight(text, [{"start": 0, "end": 12, "weight": 0.5},
                            {"start": 15, "end": 22, "weight": 0.1},
                            {"start": 5, "end": 10, "weight": 1.0},
                            {"start": 60, "end": 10_000, "weight": -0.2}])  # fmt: skip
    assert html.count("<mark") == 3
    assert "<b>" not in html
    plain = re.sub(r"<[^>]+>", "", html).replace("&lt;", "<").replace("&gt;", ">")
    assert plain.replace("&amp;", "&") == text


def test_a_long_text_is_cut_between_passages() -> None:
    text = "word " * 100_000
    html = highlight(text, [{"start": 250_000, "end": 250_010, "weight": 1.0}])
    assert len(html) < 2000
    assert "…" in html


def test_the_report_stands_alone(tmp_path: Path) -> None:
    store = fill(tmp_path / "results.sqlite")
    results = read_results([store.path])
    page = make_report(
        results, read_classifiers(fill_bundles(tmp_path / "b")), fidelity_rows(results)
    )
    assert page.count('<div class="chart"') > 10
    assert "Test CPU, 2 cores, 8 GiB" in page
    markup = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert not re.search(r"(src|href)=.?https?:", markup)
    assert page.count("<script") == page.count("</script>") == 2


def test_a_report_of_nothing_says_what_to_run(tmp_path: Path) -> None:
    page = make_report(read_results([tmp_path / "none.sqlite"]), [], [])
    assert "longdoc bench" in page


def test_a_rate_that_was_tried_again_is_drawn_as_the_last_time() -> None:
    tests = [a_load_test(offered)[0] for offered in (10.0, 20.0)]
    again = tests[1].model_copy(update={"p99": 9.0})
    figure = against_load([*tests, again])
    [rows] = figure.chart.to_dict()["datasets"].values()
    assert [row["ms"] for row in rows if (row["rate"], row["which"]) == (20.0, "p99")] == [9000.0]
    assert len(figure.rows) == 3
