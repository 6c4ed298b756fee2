"""Try it: classify a document with one or two running services, and see the evidence."""

from __future__ import annotations

from typing import Any

import streamlit as st

from dashboard import controls
from dashboard.choice_charts import score_chart
from dashboard.highlight import highlight
from dashboard.remote import Remote, RemoteError
from dashboard.views.live import ask_remote

_UPLOAD_MB = 8
_MOST_CHARACTERS = 8 << 20


def draw() -> None:
    controls.heading(
        "Try it",
        "Paste or drop a document and see its label, what was read of it, how long it took, and "
        "which passages speak for the label.",
    )
    two = st.toggle("Compare two services", key="two", bind="query-params")
    remotes = [ask_remote("address", "http://127.0.0.1:8000")]
    if two:
        remotes.append(ask_remote("second", "http://127.0.0.1:8001"))
    text = _ask_text()
    evidence = st.slider("Passages of evidence", 0, 20, 5, key="evidence", bind="query-params")
    if st.button("Classify", type="primary", disabled=not text.strip()):
        st.session_state["answers"] = [
            (remote.address, text, _classify(remote, text, evidence)) for remote in remotes
        ]
    answers = st.session_state.get("answers", [])
    if not answers:
        st.info("Nothing classified yet. A service is started with:")
        st.code("longdoc serve", language="bash")
        return
    for column, (address, read, answer) in zip(st.columns(len(answers)), answers, strict=True):
        with column:
            _show(address, read, answer)
    rows = [
        {"service": address, "label": score["label"], "score": score["score"]}
        for address, _, answer in answers
        if isinstance(answer, dict)
        for score in answer["results"][0]["scores"]
    ]
    if rows:
        controls.show_figure(score_chart(rows), "scores")


def _ask_text() -> str:
    file = st.file_uploader("Drop a text file", max_upload_size=_UPLOAD_MB, key="document")
    if file is not None:
        try:
            return str(file.getvalue().decode())
        except UnicodeDecodeError:
            st.error("This file is not text in UTF-8. Save it as plain text first.")
            return ""
    return st.text_area("Or paste it", height=200, max_chars=_MOST_CHARACTERS, key="text")


def _classify(remote: Remote, text: str, evidence: int) -> dict[str, Any] | str:
    """The answer, or a sentence that says why there is none."""
    try:
        return Remote(remote.address, remote.key, seconds=60.0).classify(text, evidence)
    except RemoteError as error:
        return str(error)


def _show(address: str, text: str, answer: dict[str, Any] | str) -> None:
    if isinstance(answer, str):
        st.error(answer)
        return
    result = answer["results"][0]
    read, timings = result["tokens"], answer["timings_ms"]
    st.subheader(f"{result['label']} · {result['score']:.1%}")
    st.caption(f"{answer.get('model')} at {address}, {answer.get('engine')}")
    windows = f" in {read['windows']} windows" if read["windows"] > 1 else ""
    cut = ", the end was not read" if read["truncated"] else ""
    st.markdown(
        f"Read **{read['used']:,}** of {read['total']:,} tokens{windows}{cut}. Tokenizing took "
        f"{timings['tokenize']:.1f} ms, waiting {timings['queue']:.1f}, inference "
        f"{timings['infer']:.1f}; {answer['client_ms']:.1f} ms as seen from here."
    )
    if result["evidence"]:
        st.markdown("**Evidence**")
        st.html(highlight(text, result["evidence"]))
