"""Choose: which attention and engine suit the user's documents."""

from __future__ import annotations

import streamlit as st

from dashboard import controls
from dashboard.choice_charts import choice_chart
from dashboard.choosing import (
    TOKENS_PER_WORD,
    Candidate,
    Wanted,
    explain,
    from_percentiles,
    lengths_of_files,
    parse_lengths,
    rank,
)
from dashboard.data import classifiers, results
from dashboard.reading import held_against_load_tests, service_memory

_UPLOAD_MB = 20


def draw() -> None:
    controls.heading(
        "Choose",
        "Tell how long your documents are and what you can afford; get the attention and engine "
        "that suit them, and the command that deploys the winner.",
    )
    found = results()
    controls.show_problems(found)
    run = controls.choose_run(found)
    if run is None:
        controls.empty("Nothing has been measured yet.", "longdoc bench --quick")
        return
    lengths = _ask_lengths()
    wanted, dataset = _ask_limits(lengths, run.environment.cores)
    if not lengths:
        st.info("Give the lengths of some documents to see what suits them.")
        return
    every = classifiers()
    known = {c.attention: c for c in every if c.dataset == dataset}
    measurements = found.measurements[run.run]
    limits = {c.name: c.max_tokens for c in every}
    checks = held_against_load_tests(found.load_tests, measurements, limits)
    ranked = rank(measurements, wanted, known, service_memory(checks))
    if not ranked:
        controls.empty("This run measured no single documents.", "longdoc bench --quick")
        return
    _show_winner(ranked, wanted)
    _show_ranking(ranked)
    st.subheader("Predicted latency")
    st.caption(
        "In the order of the ranking; what misses the limits is faint, the line is the target."
    )
    controls.show_figure(choice_chart(ranked, wanted.latency_ms), "choices-latency")


def _ask_lengths() -> list[int]:
    how = controls.choose_one("Your documents", ["percentiles", "paste", "upload"], "how")
    if how == "percentiles":
        columns = st.columns(3)
        labels = (("median", 1500), ("95th percentile", 8000), ("longest", 16000))
        values = [
            column.number_input(
                f"{name} in tokens",
                min_value=1,
                max_value=1 << 20,
                value=value,
                key=name[:2],
                bind="query-params",
            )
            for column, (name, value) in zip(columns, labels, strict=True)
        ]
        return from_percentiles(*values)
    words = f"a text is taken for {TOKENS_PER_WORD} tokens per word"
    if how == "paste":
        text = st.text_area(
            f"Token counts, or texts with one document per line ({words})",
            max_chars=1_000_000,
            key="pasted",
        )
        return _described(parse_lengths(text))
    files = st.file_uploader(
        "Texts, each file a document; or token counts; or .csv and .jsonl with a document per "
        f"line ({words})",
        max_upload_size=_UPLOAD_MB,
        accept_multiple_files=True,
        key="file",
    )
    try:
        uploaded = [(file.name, file.getvalue().decode()) for file in files]
    except UnicodeDecodeError:
        st.error("A file is not text in UTF-8. Upload texts, CSV or JSON-lines files.")
        return []
    return _described(lengths_of_files(uploaded))


def _described(lengths: list[int]) -> list[int]:
    """The lengths again, after a line about them."""
    if lengths:
        middle = sorted(lengths)[len(lengths) // 2]
        st.caption(
            f"{len(lengths):,} document{'s' * (len(lengths) > 1)}, {min(lengths):,} to "
            f"{max(lengths):,} tokens, median {middle:,}."
        )
    return lengths


def _ask_limits(lengths: list[int], cores: int) -> tuple[Wanted, str]:
    columns = st.columns(4)
    latency = columns[0].number_input(
        "latency target, p95 ms", 1.0, 600_000.0, 1000.0, key="target", bind="query-params"
    )
    memory = columns[1].number_input(
        "memory limit, MB", 10.0, 1e7, 2000.0, key="memory", bind="query-params"
    )
    used = columns[2].number_input("cores", 1, 1024, cores, key="cores", bind="query-params")
    datasets = sorted({c.dataset for c in classifiers()}) or ["elife"]
    dataset = columns[3].selectbox(
        "accuracy measured on", datasets, key="dataset", bind="query-params"
    )
    return Wanted(lengths, latency, memory, used), dataset or datasets[0]


def _show_winner(ranked: list[Candidate], wanted: Wanted) -> None:
    best = ranked[0]
    (st.success if best.fits else st.warning)(explain(ranked, wanted))
    st.code(best.command(), language="bash")
    if best.beyond:
        st.caption("Your longest documents are longer than any measured: its figures are extended.")


def _show_ranking(ranked: list[Candidate]) -> None:
    rows = [
        {
            "rank": place,
            "attention × engine": candidate.title,
            "p95 ms": candidate.p95_ms,
            "memory MB": candidate.memory_mb,
            "accuracy": candidate.accuracy,
            "documents/s": candidate.documents_per_second,
            "per core": candidate.per_core,
            "reads the longest": candidate.reading,
            "ruled out by": candidate.misses or None,
        }
        for place, candidate in enumerate(ranked, 1)
    ]
    number = st.column_config.NumberColumn
    controls.show_ranked(
        rows,
        "choices",
        [not candidate.fits for candidate in ranked],
        **{
            "p95 ms": number("p95 ms", format="%.0f"),
            "memory MB": number("memory MB", format="%.0f"),
            "documents/s": number("documents/s", format="%.1f"),
            "per core": number("per core", format="%.1f"),
            "accuracy": number("accuracy", format="%.3f"),
        },
    )
    st.caption(
        "p95 is over your documents, computed alone, without waiting for others. Memory is that "
        "of a whole service with one of your longest documents on every core, as load tests found "
        "it ([how far off](glance))."
    )
