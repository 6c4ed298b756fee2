"""Live: a running service by its address, refreshed every two seconds."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from typing import Any

import streamlit as st

from dashboard import controls
from dashboard.load_charts import live_chart
from dashboard.remote import Remote, RemoteError, rates

_EVERY = 2.0
_KEPT = 150  # points of history, five minutes


def draw() -> None:
    controls.heading("Live", "What a running service is doing now.")
    remote = ask_remote("address", "http://127.0.0.1:8000")
    _refresh(remote)


def ask_remote(key: str, default: str) -> Remote:
    """Ask for a service's address, kept in the page's link, and its key, which is not."""
    left, right = st.columns([3, 1])
    address = left.text_input(
        "Address of a service", default, key=key, max_chars=300, bind="query-params"
    )
    secret = right.text_input("Key, if it wants one", "", key=f"{key}-key", type="password")
    return Remote(address.strip(), secret)


@st.fragment(run_every=_EVERY)
def _refresh(remote: Remote) -> None:
    try:
        ready = remote.ready()
        metrics = remote.metrics()
    except RemoteError as error:
        st.error(f"{error}")
        st.caption(f"Trying again every {_EVERY:g} seconds.")
        return
    history = _remember(remote.address, metrics)
    (st.success if ready else st.warning)("Ready" if ready else "Not ready: starting or draining")
    if not history:
        st.caption("Gathering the first figures …")
    else:
        _draw_figures(history)
    _draw_info(remote)


def _remember(address: str, metrics: Mapping[str, float]) -> deque[dict[str, Any]]:
    """Add a reading to the session's bounded history of this address."""
    now = time.monotonic()
    kept = st.session_state.get("live")
    if kept is None or kept["address"] != address:
        kept = {"address": address, "last": None, "history": deque(maxlen=_KEPT)}
        st.session_state["live"] = kept
    last = kept["last"]
    history: deque[dict[str, Any]] = kept["history"]
    if last is None or now - last[0] >= 0.5:
        if last is not None:
            history.append({"when": now, **rates(last[1], metrics, now - last[0])})
        kept["last"] = (now, dict(metrics))
    return history


def _draw_figures(history: deque[dict[str, Any]]) -> None:
    now = history[-1]
    figures = (
        ("requests/s", now["requests"], "%.1f"),
        ("tokens/s", now["tokens"], "%.0f"),
        ("latency, ms", now["latency"], "%.1f"),
        ("queue", now["queue"], "%.0f"),
        ("errors/s", now["errors"], "%.1f"),
        ("memory, MB", now["memory"], "%.0f"),
    )
    columns = st.columns(len(figures))
    for column, (name, value, form) in zip(columns, figures, strict=True):
        column.metric(name, "–" if value is None else form % value)
    points = [{**point, "at": point["when"] - now["when"]} for point in history]
    charts = (
        ({"requests": "requests", "errors": "errors"}, "Requests per second"),
        ({"latency": "request", "queue_wait": "queue", "infer": "inference"}, "Mean milliseconds"),
        ({"queue": "jobs that wait or run"}, "Queue"),
        ({"memory": "resident MB"}, "Memory"),
    )
    for row in (charts[:2], charts[2:]):
        for column, (fields, title) in zip(st.columns(2), row, strict=True):
            with column:
                figure = live_chart(points, fields, title)
                controls.show_figure(figure, f"live-{title.lower().replace(' ', '-')}")


def _draw_info(remote: Remote) -> None:
    try:
        info = remote.info()
    except RemoteError as error:
        st.warning(f"{error}")
        return
    engine = info["engine"]
    st.subheader(str(info.get("model", "")))
    st.markdown(
        f"{info.get('task', '')} — {len(info['labels'])} labels, "
        f"{info.get('attention', {}).get('name', '?')} attention, "
        f"{engine.get('name')} on {engine.get('device')} in {engine.get('precision')}: "
        f"{engine.get('reason', '')}."
    )
    with st.expander("All that /info says"):
        st.json(info)
