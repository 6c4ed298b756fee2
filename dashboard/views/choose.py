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
    parse_lengths,
    rank,
)
from dashboard.data import classifiers, results

_UPLOAD_MB = 20


def draw() -> None:
    """Draw the page."""
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
    known = {c.attention: c for c in classifiers() if c.dataset == dataset}
    ranked = rank(found.measurements[run.run], wanted, known)
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
        return _parsed(text)
    file = st.file_uploader(
        f"A file of token counts or of texts, one document per line ({words})",
        max_upload_size=_UPLOAD_MB,
        key="file",
    )
    if file is None:
        return []
    try:
        return _parsed(file.getvalue().decode())
    except UnicodeDecodeError:
        st.error("This file is not text in UTF-8. Upload a text, CSV or JSON-lines file.")
        return []


def _parsed(text: str) -> list[int]:
    lengths = parse_lengths(text)
    if lengths:
        middle = sorted(lengths)[len(lengths) // 2]
        st.caption(
            f"{len(lengths):,} documents, {min(lengths):,} to {max(lengths):,} tokens, "
            f"median {middle:,}."
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
            "fits": candidate.fits,
            "p95 ms": candidate.p95_ms,
            "memory MB": candidate.memory_mb,
            "documents/s": candidate.documents_per_second,
            "per core": candidate.per_core,
            "accuracy": candidate.accuracy,
        }
        for place, candidate in enumerate(ranked, 1)
    ]
    number = st.column_config.NumberColumn
    controls.show_table(
        rows,
        "choices",
        **{
            "p95 ms": number("p95 ms", format="%.0f"),
            "memory MB": number("memory MB", format="%.0f"),
            "documents/s": number("documents/s", format="%.1f"),
            "per core": number("per core", format="%.1f"),
            "accuracy": number("accuracy", format="%.3f"),
        },
    )
    st.caption(
        "p95 is over your documents, computed alone, without waiting for others. Memory is a "
        "loaded service with one of your longest documents on every core."
    )
