"""Fidelity: how close each approximation comes to what it approximates."""

from __future__ import annotations

import streamlit as st

from dashboard import controls
from dashboard.accuracy_charts import fidelity_chart
from dashboard.data import fidelity_rows, results


def draw() -> None:
    controls.heading(
        "Fidelity",
        "The error of each approximation, relative to the exact attention it stands for, against "
        "its budget. Random data is the worst case; smooth data is closer to what neighbouring "
        "tokens of a document look like.",
    )
    rows = fidelity_rows(results())
    if not rows:
        controls.empty("No fidelity has been measured yet.", "python -m benchmarks.fidelity")
        return
    kinds = sorted({str(row["data"]) for row in rows}, reverse=True)
    kind = controls.choose_one("Data", kinds, "data")
    lengths = sorted({int(row["n"]) for row in rows})
    n = int(controls.choose_one("Tokens", [str(length) for length in lengths], "n"))
    shown = [row for row in rows if row["data"] == kind and row["n"] == n]
    controls.show_figure(fidelity_chart(shown), f"fidelity-{kind}-{n}")
    st.caption(
        "The budget is landmarks, features, projected rows or window, as each mechanism has it. "
        "Skyformer is compared with kernelized attention, the others with softmax. Errors below "
        "0.001 are drawn at 0.001. The band spans three seeds."
    )
