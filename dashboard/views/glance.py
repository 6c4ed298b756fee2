"""At a glance: for documents of one length, what to run, what it takes, and how sure that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import streamlit as st

from benchmarks.records import Measurement, Run
from dashboard import controls
from dashboard.accuracy import Classifier, baseline_of
from dashboard.choosing import Candidate, Wanted, explain, rank
from dashboard.comparison import beside_other_servers
from dashboard.costs import interpolate, latencies_of
from dashboard.data import Results, classifiers, results
from dashboard.reading import (
    describe_reading,
    document_cost,
    held_against_load_tests,
    service_memory,
    typical_error,
)
from dashboard.series import title

_LENGTHS = (512, 1024, 2048, 4096, 8192, 16_384)
_NUMBER = st.column_config.NumberColumn


def draw() -> None:
    controls.heading(
        "At a glance",
        "Which attention suits documents of one length on this machine, what it takes, and how "
        "far that can be believed. Every figure has a page of its own: "
        "[cost by length](cost), [choose](choose), [accuracy](accuracy), [load tests](loads).",
    )
    found = results()
    controls.show_problems(found)
    runs = found.measured_runs()
    if not runs:
        controls.empty("Nothing has been measured yet.", "longdoc bench --quick")
        return
    run = runs[0]
    measurements = found.measurements[run.run]
    every = classifiers()
    dataset = sorted({each.dataset for each in every})[:1]
    known = {each.attention: each for each in every if each.dataset in dataset}
    checks = held_against_load_tests(
        found.load_tests, measurements, {each.name: each.max_tokens for each in every}
    )
    wanted = _ask(run)
    ranked = [
        candidate
        for candidate in rank(measurements, wanted, known, service_memory(checks))
        if (candidate.engine, candidate.precision) == ("onnxruntime", "fp32")
    ]
    if not ranked:
        controls.empty("This run measured no single documents.", "longdoc bench --quick")
        return
    best = ranked[0]
    (st.success if best.fits else st.warning)(explain(ranked, wanted))
    st.code(best.command(), language="bash")
    _show(ranked, list(known.values()), run)
    _show_windows(wanted.lengths[0], measurements, known)
    _show_servers(found)
    _show_errors(checks)


def _ask(run: Run) -> Wanted:
    length = int(
        controls.choose_one(
            "Tokens of a document", [str(n) for n in _LENGTHS], "tokens",
            lambda text: f"{int(text):,}", default="4096",
        )
    )  # fmt: skip
    columns = st.columns(3)
    latency = columns[0].number_input(
        "at most, ms at p95", 1.0, 600_000.0, 1000.0, key="target", bind="query-params"
    )
    memory = columns[1].number_input(
        "at most, MB", 10.0, 1e7, 1000.0, key="memory", bind="query-params"
    )
    cores = columns[2].number_input(
        "cores", 1, 1024, run.environment.cores, key="cores", bind="query-params"
    )
    return Wanted([length], latency, memory, cores)


def _show(ranked: Sequence[Candidate], known: Sequence[Classifier], run: Run) -> None:
    rows = [
        {
            "attention": title(candidate.attention),
            "p95 ms": candidate.p95_ms,
            "memory MB": candidate.memory_mb,
            "accuracy": candidate.accuracy,
            "reads": candidate.reading,
            "ruled out by": candidate.misses or None,
        }
        for candidate in ranked
    ]
    controls.show_ranked(
        rows,
        "glance",
        [not candidate.fits for candidate in ranked],
        **{
            "p95 ms": _NUMBER("p95 ms", format="%.0f"),
            "memory MB": _NUMBER("memory MB", format="%.0f"),
            "accuracy": _NUMBER("accuracy", format="%.3f"),
            "reads": st.column_config.TextColumn("reads", width=180),
        },
    )
    baseline = baseline_of(known)
    rival = f" {baseline[0]} reaches {baseline[1]:.3f}." if baseline else ""
    st.caption(
        f"Time: a document computed alone with ONNX Runtime in fp32, without waiting for others "
        f"({run.title}). Memory: a whole service with a document on every core. Accuracy: the "
        f"bundle's, on its test documents.{rival}"
    )


def _show_windows(
    length: int, measurements: Sequence[Measurement], known: Mapping[str, Classifier]
) -> None:
    """What reading in windows costs or saves, where a bundle does."""
    latencies = latencies_of(measurements)
    rows = []
    for attention, classifier in known.items():
        points = latencies.get(attention, {})
        whole = interpolate(points, length)
        if whole is None or length <= classifier.max_tokens:
            continue
        cut = document_cost(points, length, classifier.max_tokens)
        rows.append(
            {
                "attention": title(attention),
                "its bundle reads": describe_reading(length, classifier.max_tokens),
                "median ms": cut,
                "median ms, read whole": whole,
                "whole takes": whole / cut,
            }
        )
    st.subheader("Reading in windows")
    if not rows:
        st.markdown(f"Every bundle reads documents of {length:,} tokens whole.")
        return
    controls.show_table(
        rows,
        "windows",
        **{
            "median ms": _NUMBER("median ms", format="%.0f"),
            "median ms, read whole": _NUMBER("median ms, read whole", format="%.0f"),
            "whole takes": _NUMBER("whole takes", format="%.1f times"),
        },
    )
    st.caption(
        "Windows keep the cost of attention in proportion to the length, and no word of one "
        "window is related to a word of another. [Cost by length](cost) compares both."
    )


def _show_servers(found: Results) -> None:
    rows = beside_other_servers(found.load_tests)
    if not rows:
        return
    st.subheader("Beside other servers")
    number = {name: _NUMBER(name, format="%.0f") for name in ("median ms", "p99 ms", "memory MB")}
    controls.show_table(
        rows, "servers", **number, **{"documents/s": _NUMBER("documents/s", format="%.0f")}
    )
    st.caption(
        "The same network behind each server, short and long documents mixed, 32 callers: "
        "medians over rounds taken in turns. All loads: [load tests](loads)."
    )


def _show_errors(checks: Sequence[controls.Row]) -> None:
    st.subheader("How far predictions can be believed")
    if not checks:
        st.markdown("No load test is there to hold them against: `longdoc loadtest --lengths …`")
        return
    own = service_memory(checks) / 1e6
    rows = [row | {"predicted MB": row.pop("networks MB") + own} for row in map(dict, checks)]
    time = typical_error(rows, "predicted ms", "measured ms")
    memory = typical_error(rows, "predicted MB", "measured MB")
    st.markdown(
        f"Held against {len(rows)} load tests of a whole service, predicted times are typically "
        f"off by **{time or 0:.0%}** and memory by **{memory or 0:.0%}**. What a service "
        f"takes on top of its networks, {own:.0f} MB, is the median of these tests."
    )
    with st.expander("Each prediction and what was measured"):
        names = ("predicted ms", "measured ms", "predicted MB", "measured MB")
        controls.show_table(rows, "checks", **{n: _NUMBER(n, format="%.0f") for n in names})
