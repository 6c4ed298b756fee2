"""Accuracy against cost: what the bundled classifiers reach, and what they take."""

from __future__ import annotations

import streamlit as st

from dashboard import controls
from dashboard.accuracy import accuracy_rows, baseline_of, read_rows, typical_length
from dashboard.accuracy_charts import METRICS, accuracy_chart, read_chart
from dashboard.costs import latencies_of
from dashboard.data import classifiers, results


def draw() -> None:
    controls.heading(
        "Accuracy against cost",
        "Each bundled classifier on test documents that its training has not seen, against the "
        "time for a typical document. The line joins those that no other beats in both; whiskers "
        "are 95% intervals.",
    )
    known = classifiers()
    if not known:
        controls.empty(
            "There are no bundles.",
            "longdoc train --help\nlongdoc export --help",
        )
        return
    found = results()
    controls.show_problems(found)
    datasets = sorted({each.dataset for each in known})
    dataset = controls.choose_one("Data set", datasets, "dataset")
    metric = controls.choose_one("Show", list(METRICS), "show", lambda name: METRICS[name])
    mine = [each for each in known if each.dataset == dataset]
    length = typical_length(mine)
    baseline = baseline_of(mine)
    line = None
    if baseline is not None:
        value = baseline[1] if metric == "accuracy" else baseline[2]
        line = None if value is None else (baseline[0], value)
    run = controls.choose_run(found)
    if run is None:
        controls.empty("No latency has been measured yet.", "longdoc bench --quick")
    elif length is not None:
        tokens, kind = length
        latencies = latencies_of(found.measurements[run.run])
        rows = accuracy_rows(mine, latencies, tokens)
        st.caption(
            f"Latency is read off for {tokens:,} tokens, the {kind} length of the test documents, "
            "with ONNX Runtime in fp32."
        )
        controls.show_figure(accuracy_chart(rows, metric, line), f"{dataset}-{metric}")
    reads = read_rows(mine)
    if reads:
        st.subheader("By how much of each document is read")
        controls.show_figure(read_chart(reads, metric), f"{dataset}-{metric}-by-read")
