"""The context of a request: its id, its log line, what it gives back."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.support.serving import TEXT, Served, serving, wait_until


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving() as running:
        yield running


@pytest.mark.parametrize("id_", ["a", "A-1._:", "x" * 128])
def test_a_safe_id_is_the_requests_id(served: Served, id_: str) -> None:
    assert served.get("/healthz", headers={"x-request-id": id_}).headers["x-request-id"] == id_


@pytest.mark.parametrize("id_", ["", "x" * 129, "a b", "a\tb", "a\xff", 'a"b'])
def test_another_id_is_replaced(served: Served, id_: str) -> None:
    header = {"x-request-id": id_.encode("latin-1")}
    answered = served.get("/healthz", headers=header).headers["x-request-id"]
    assert len(answered) == 16
    assert int(answered, 16) >= 0


def test_a_requests_log_line_adds_up_and_holds_no_text(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "longdoc.request"):
        body = served.post("/classify", json={"input": [TEXT, "larvae"]}).json()
        served.get("/nothing")
        served.get("/healthz")
        wait_until(lambda: len(caplog.records) >= 2)
    first, second = (record.values for record in caplog.records)  # type: ignore[attr-defined]
    assert first["id"] == body["id"]
    assert (first["route"], first["status"], first["texts"]) == ("/classify", 200, 2)
    assert first["tokens"] == sum(result["tokens"]["used"] for result in body["results"])
    parts = first["tokenize_ms"] + first["queue_ms"] + first["infer_ms"]
    assert parts == pytest.approx(sum(list(body["timings_ms"].values())[:3]), abs=0.01)
    assert parts <= first["total_ms"]
    assert (second["route"], second["status"], second["texts"]) == ("unmatched", 404, None)
    assert "larvae" not in caplog.text


def test_timings_of_several_windows_and_texts_add_up(served: Served) -> None:
    body = served.post("/classify", json={"input": ["word " * 400, TEXT, "word " * 300]}).json()
    timings = body["timings_ms"]
    assert body["results"][0]["tokens"]["windows"] > 1
    total = timings.pop("total")
    assert sum(timings.values()) == pytest.approx(total, abs=0.01)
    assert min(timings.values()) >= 0


@pytest.mark.parametrize(
    "request_",
    [
        {"json": {"input": TEXT}},
        {"json": {"input": ""}},
        {"json": {"input": TEXT, "timeout_ms": 1}},
        {"content": b"{", "headers": {"content-type": "application/json"}},
        {"content": iter([b'{"input": ', b'"a"}'])},
        {"content": b"x", "headers": {"content-encoding": "gzip"}},
    ],
)
def test_what_a_request_holds_is_given_back(served: Served, request_: dict[str, object]) -> None:
    served.post("/classify", **request_)
    wait_until(lambda: served.service.in_flight == 0)
    wait_until(lambda: served.service.held_bytes == 0)
