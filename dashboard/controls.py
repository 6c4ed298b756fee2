"""What the pages share: headings, selections kept in the address, downloads, empty states."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from typing import Any

import altair as alt
import pandas as pd
import streamlit as st

from benchmarks.records import Run
from dashboard.chart_parts import Figure, to_png, without_legend
from dashboard.costs import ENGINE_TITLES
from dashboard.data import Results
from dashboard.looks import MUTED, legend_html

Row = dict[str, Any]


def heading(title: str, words: str) -> None:
    """The page's title and what it is for."""
    st.title(title)
    st.markdown(words)


def empty(what: str, command: str) -> None:
    """Nothing to show, and what to run."""
    st.info(f"{what} Run this in a terminal, then reload the page:")
    st.code(command, language="bash")


def show_problems(results: Results) -> None:
    """What could not be read of the results files."""
    if results.problems:
        count = len(results.problems)
        shown = "\n".join(f"- {problem}" for problem in results.problems[:10])
        more = f"\n- and {count - 10} more" if count > 10 else ""
        st.warning(f"Some results could not be read and are left out:\n{shown}{more}")


def choose_run(results: Results) -> Run | None:
    """Let the user choose what machine and day to look at; None when nothing was measured."""
    runs = results.measured_runs()
    if not runs:
        return None
    titles = {run.run: run.title for run in runs}
    chosen = st.selectbox(
        "Measured",
        list(titles),
        format_func=lambda name: titles.get(name, name),
        key="run",
        bind="query-params",
    )
    run = results.runs[chosen or runs[0].run]
    if run.busy:
        st.caption(
            f"Others used {run.load_before:g} of this machine's cores before the run: compare the "
            "lines with each other, not the milliseconds with another machine's."
        )
    return run


def engine_title(engine: str, precision: str) -> str:
    """An engine and precision for people."""
    return f"{ENGINE_TITLES.get(engine, engine)} · {precision}"


def choose_one(
    label: str,
    options: Sequence[str],
    key: str,
    names: Callable[[str], str] = str,
    default: str | None = None,
) -> str:
    """A choice among a few, kept in the address; the first by default."""
    default = default or options[0]
    chosen = st.segmented_control(
        label,
        options,
        default=default,
        required=True,
        format_func=names,
        key=key,
        bind="query-params",
    )
    return chosen or default


def show_figure(figure: Figure, name: str) -> None:
    """A chart under a legend that wraps, with downloads as CSV and PNG."""
    st.html(legend_html(figure.looks))
    st.altair_chart(without_legend(figure.chart), width="stretch", key=f"chart-{name}")
    download(figure.rows, name, figure.chart)


def show_table(rows: Sequence[Row], name: str, /, **columns: Any) -> None:
    _draw_table(list(rows), name, columns)
    download(rows, name)


def show_ranked(rows: Sequence[Row], name: str, grey: Sequence[bool], /, **columns: Any) -> None:
    """A table in which some rows are grey, since they are ruled out."""
    frame = pd.DataFrame(list(rows))
    styles = [[f"color: {MUTED}" if each else ""] * len(frame.columns) for each in grey]
    colours = pd.DataFrame(styles, index=frame.index, columns=frame.columns)
    _draw_table(frame.style.apply(lambda _: colours, axis=None), name, columns)
    download(rows, name)


def _draw_table(table: Any, name: str, columns: dict[str, Any]) -> None:
    st.dataframe(
        table,
        hide_index=True,
        column_config=columns or None,
        placeholder="–",
        key=f"table-{name}",
    )


def download(rows: Sequence[Row], name: str, chart: alt.LayerChart | None = None) -> None:
    """Buttons for CSV and, of a chart, PNG; nothing is computed before one is pressed."""
    with st.container(horizontal=True):
        st.download_button(
            "CSV",
            lambda: to_csv(rows),
            file_name=f"longdoc-{name}.csv",
            mime="text/csv",
            icon=":material/table:",
            key=f"csv-{name}",
            on_click="ignore",
        )
        if chart is not None:
            picture = chart
            st.download_button(
                "PNG",
                lambda: to_png(picture),
                file_name=f"longdoc-{name}.png",
                mime="image/png",
                icon=":material/image:",
                key=f"png-{name}",
                on_click="ignore",
            )


def to_csv(rows: Sequence[Row]) -> bytes:
    """Rows as CSV, with the columns of all of them."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()
