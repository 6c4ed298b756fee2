"""The service's promises, kept by a real server around a fake engine."""

from __future__ import annotations

import gzip
import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from service.engines.base import Ids, Output
from service.engines.fake import FakeEngine
from service.text.tokenizer import Reader
from tests.support.serving import (
    LABELS,
    MAX_TOKENS,
    TEXT,
    Served,
    fake_deployment,
    serving,
    wait_until,
)
from tests.support.serving import tokenizer as small_tokenizer


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving() as running:
        yield running


def test_an_answer_has_what_the_contract_says(served: Served) -> None:
    response = served.classify(top_k=2)
    body = response.json()
    made_by = {"model", "model_version", "bundle_digest", "attention", "engine"}
    assert set(body) == {"id", "results", "timings_ms"} | made_by
    assert (body["model"], body["attention"], body["engine"]) == (
        "fake-linear",
        "linear",
        "fake:cpu",
    )
    result = body["results"][0]
    assert result["label"] == result["scores"][0]["label"]
    assert result["score"] == result["scores"][0]["score"]
    assert len(result["scores"]) == 2
    assert result["tokens"] == {
        "total": result["tokens"]["used"],
        "used": result["tokens"]["used"],
        "windows": 1,
        "truncated": False,
    }
    assert result["evidence"] == []
    assert set(body["timings_ms"]) == {"tokenize", "queue", "infer", "total"}
    assert response.headers["x-request-id"] == body["id"]


def test_scores_of_all_labels_sum_to_one(served: Served) -> None:
    scores = served.classify(top_k=None).json()["results"][0]["scores"]
    assert sum(score["score"] for score in scores) == pytest.approx(1)
    assert [s["score"] for s in scores] == sorted((s["score"] for s in scores), reverse=True)


@pytest.mark.parametrize("name", ["input", "inputs", "text"])
def test_the_text_has_three_names_and_may_be_a_list(served: Served, name: str) -> None:
    one = served.post("/classify", json={name: TEXT}).json()["results"]
    two = served.post("/classify", json={name: [TEXT, "Another."]}).json()["results"]
    assert len(one) == 1
    assert len(two) == 2
    for mine, alone in zip(two[0]["scores"], one[0]["scores"], strict=True):
        assert mine["label"] == alone["label"]
        assert mine["score"] == pytest.approx(alone["score"], abs=1e-6)


def test_plain_text_with_options_in_the_query(served: Served) -> None:
    response = served.post(
        "/classify?top_k=1&evidence=2",
        content=TEXT.encode(),
        headers={"content-type": "text/plain; charset=utf-8"},
    )
    result = response.json()["results"][0]
    assert len(result["scores"]) == 1
    assert result["scores"][0] == served.classify().json()["results"][0]["scores"][0]


def test_gzip(served: Served) -> None:
    body = json.dumps({"input": TEXT}).encode()
    packed = gzip.compress(body[:20]) + gzip.compress(body[20:])
    response = served.post(
        "/classify",
        content=packed,
        headers={"content-type": "application/json", "content-encoding": "gzip"},
    )
    assert response.json()["results"] == served.classify().json()["results"]


def test_request_ids_come_in_and_go_out(served: Served) -> None:
    sent = served.post("/classify", json={"input": "a"}, headers={"x-request-id": "mine-1"})
    assert sent.headers["x-request-id"] == sent.json()["id"] == "mine-1"
    unsafe = served.post("/classify", json={"input": "a"}, headers={"x-request-id": "a b;c"})
    assert unsafe.headers["x-request-id"] != "a b;c"
    assert served.get("/nothing").headers["x-request-id"]


def test_overflow_is_told_or_refused(served: Served) -> None:
    text = "word " * 300
    windowed = served.classify(text).json()["results"][0]["tokens"]
    cut = served.classify(text, on_overflow="truncate").json()["results"][0]["tokens"]
    refused = served.classify(text, on_overflow="error")
    assert windowed["windows"] > 1
    assert windowed["used"] == windowed["total"] == cut["total"] > MAX_TOKENS
    assert not windowed["truncated"]
    assert cut == {"total": cut["total"], "used": MAX_TOKENS, "windows": 1, "truncated": True}
    assert refused.status_code == 422
    assert refused.json()["type"] == "urn:longdoc:problem:too-many-tokens"
    assert refused.json()["errors"][0]["field"] == "input.0"


def test_evidence_weights_are_shares_of_the_logit(served: Served) -> None:
    text = " ".join(f"Sentence {i} speaks of larvae, sugar and neurons." for i in range(6))
    result = served.classify(text, evidence=100, top_k=None).json()["results"][0]
    ids = Reader(small_tokenizer(), 10_000, 0).read(text).ids
    logits = FakeEngine(len(LABELS)).run(ids[None], np.array([len(ids)])).logits[0]
    label = LABELS.index(result["label"])
    weights = [passage["weight"] for passage in result["evidence"]]
    assert weights == sorted(weights, reverse=True)
    assert len(result["evidence"]) == 6
    assert sum(weights) == pytest.approx(float(logits[label]), abs=1e-5)


def test_stream_echoes_ids_in_order_and_keeps_errors_on_their_line(served: Served) -> None:
    lines = [
        {"id": "a", "input": TEXT, "top_k": 1},
        {"id": 2, "input": ""},
        {"id": {"nested": [1]}, "input": "word " * 300, "on_overflow": "error"},
        {"input": "no id"},
        {"id": 5, "input": ["a", "list"]},
    ]
    body = "".join(json.dumps(line) + "\n" for line in lines) + "\n\nnot json\n"
    response = served.post(
        "/classify/stream", content=body, headers={"content-type": "application/x-ndjson"}
    )
    answers = [json.loads(line) for line in response.text.splitlines()]
    assert response.headers["content-type"] == "application/x-ndjson"
    assert [answer["id"] for answer in answers] == ["a", 2, {"nested": [1]}, None, 5, None]
    statuses = [a["error"]["status"] if "error" in a else 200 for a in answers]
    assert statuses == [200, 422, 422, 200, 422, 400]
    assert answers[0]["result"] == served.classify(top_k=1).json()["results"][0]


def test_stream_answers_while_input_still_arrives(served: Served) -> None:
    def chunk(data: bytes) -> bytes:
        return b"%x\r\n%s\r\n" % (len(data), data)

    head = b"POST /classify/stream HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
    with socket.create_connection(("127.0.0.1", served.port), timeout=10) as connection:
        connection.sendall(head + b"Content-Type: application/x-ndjson\r\n\r\n")
        connection.sendall(chunk(b'{"id": 1, "input": "first"}\n{"id": 2, "inp'))
        received = b""
        while b'"id": 1' not in received:
            received += connection.recv(65_536)
        connection.sendall(chunk(b'ut": "second"}\n') + chunk(b""))
        while b"0\r\n\r\n" not in received:
            received += connection.recv(65_536)
    assert received.startswith(b"HTTP/1.1 200 ")
    assert received.index(b'"id": 1') < received.index(b'"id": 2')


def test_stream_refuses_a_line_over_the_limit_and_goes_on() -> None:
    with serving(max_body_bytes=2000) as small:
        body = b'{"id": 1, "input": "' + b"x" * 9000 + b'"}\n{"id": 2, "input": "b"}\n'
        response = small.post(
            "/classify/stream", content=body, headers={"content-type": "application/x-ndjson"}
        )
        first, second = (json.loads(line) for line in response.text.splitlines())
        assert first["error"]["status"] == 413
        assert second["id"] == 2
        assert "result" in second


def test_estimate_runs_nothing(served: Served) -> None:
    runs = served.service.deployment.engine.runs  # type: ignore[attr-defined]
    before = len(runs)
    found = served.post("/estimate", json={"input": [TEXT, "word " * 300]}).json()
    assert len(runs) == before
    assert found["estimates"][0]["windows"] == 1
    assert found["estimates"][1]["windows"] > 1
    assert found["estimates"][1]["seconds"] >= found["estimates"][0]["seconds"] > 0
    assert found["would_be_admitted"] is True
    assert found["latency_seconds"] >= found["queue_seconds"] == 0


def test_info_tells_what_serves(served: Served) -> None:
    info = served.get("/info").json()
    assert info["labels"] == list(LABELS)
    assert info["engine"]["provider"] == "FakeProvider"
    assert info["engine"]["reason"]
    assert info["limits"]["max_tokens"] == MAX_TOKENS
    assert info["self_test"]["largest_difference"] <= 1e-4
    assert info["self_test"]["batching"] is True
    assert info["accuracy"] == {"accuracy": 0.5}
    assert info["certificate"] == {"valid": True}


def test_metrics_parse_and_count(served: Served) -> None:
    before = _samples(served)
    served.classify("word " * 300)
    served.classify("word " * 300, on_overflow="truncate")
    served.classify("")
    after = _samples(served)

    def grew(name: str, **labels: str) -> float:
        key = (name, tuple(sorted(labels.items())))
        return after[key] - before.get(key, 0.0)

    assert grew("longdoc_requests_total", route="/classify", status="200") == 2
    assert grew("longdoc_requests_total", route="/classify", status="422") == 1
    assert grew("longdoc_windowed_documents_total") == 1
    assert grew("longdoc_truncated_documents_total") == 1
    assert grew("longdoc_documents_total") == 2
    assert grew("longdoc_tokens_total") > MAX_TOKENS
    assert grew("longdoc_request_seconds_count", route="/classify") == 3
    assert grew("longdoc_tokenize_seconds_count") == 2
    assert grew("longdoc_queue_seconds_count") == grew("longdoc_batch_size_sum") > 2
    assert after[("longdoc_ready", ())] == 1
    assert after[("process_resident_memory_bytes", ())] > 0
    assert ("longdoc_predicted_queue_seconds", ()) in after
    assert ("longdoc_queue_depth", ()) in after


def test_metrics_have_no_unbounded_labels(served: Served) -> None:
    for index in range(20):
        served.get(f"/nothing-{index}")
    routes = {dict(labels).get("route") for _, labels in _samples(served)}
    assert "unmatched" in routes
    assert not any(route and route.startswith("/nothing") for route in routes)


def _samples(served: Served) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    response = served.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(response.text)
        for sample in family.samples
    }


def test_the_docs_page_shows_commands_that_work(served: Served) -> None:
    page = served.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert "curl -s" in page.text
    assert "src=" not in page.text  # loads nothing from elsewhere
    document = served.get("/openapi.json").json()
    for path in ("/classify", "/estimate"):
        content = document["paths"][path]["post"]["requestBody"]["content"]
        for example in content["application/json"]["examples"].values():
            assert served.post(path, json=example["value"]).status_code == 200
        text = content["text/plain"]["example"].encode()
        headers = {"content-type": "text/plain"}
        assert served.post(path, content=text, headers=headers).status_code == 200


def test_keys_are_needed_when_configured() -> None:
    with serving(api_keys=("first-key-1", "second-key-2")) as served:
        body = {"input": TEXT}
        for headers in ({}, {"x-api-key": "wrong-key"}, {"authorization": "Bearer x"}):
            refused = served.post("/classify", json=body, headers=headers)
            assert refused.status_code == 401
            assert refused.headers["www-authenticate"] == "Bearer"
            assert "first-key" not in refused.text
        for headers in ({"x-api-key": "second-key-2"}, {"authorization": "Bearer first-key-1"}):
            assert served.post("/classify", json=body, headers=headers).status_code == 200
        for path in ("/healthz", "/readyz", "/metrics", "/v2/health/live", "/v2/health/ready"):
            assert served.get(path).status_code == 200
        assert served.get("/info").status_code == 401
        assert "first-key" not in repr(served.service.settings)


def test_not_ready_until_a_real_inference_has_succeeded() -> None:
    gate = threading.Event()
    engine = FakeEngine(len(LABELS), seconds=lambda _batch, _n: float(not gate.wait(20)))
    with serving(fake_deployment(engine), wait=False) as served:
        assert served.get("/healthz").status_code == 200
        for response in (served.get("/readyz"), served.classify(), served.get("/info")):
            assert response.status_code == 503
            assert response.json()["type"] == "urn:longdoc:problem:not-ready"
            assert int(response.headers["retry-after"]) >= 1
        gate.set()
        wait_until(lambda: served.get("/readyz").status_code == 200)
        assert served.classify().status_code == 200


def test_a_failing_engine_is_not_ready_and_recovers() -> None:
    engine = FakeEngine(len(LABELS))
    with serving(fake_deployment(engine)) as served:
        engine.fail = RuntimeError("out of memory with secret details")
        response = served.classify()
        assert response.status_code == 500
        assert response.headers["content-type"] == "application/problem+json"
        assert "secret" not in response.text
        assert served.get("/readyz").status_code == 503
        engine.fail = None
        assert served.classify().status_code == 200
        assert served.get("/readyz").status_code == 200


class LeakyEngine(FakeEngine):
    """An engine whose answers depend on the padding."""

    def run(self, ids: Ids, lengths: Ids, **options: bool) -> Output:
        """Add something that grows with the padded length."""
        output = super().run(ids, lengths, **options)
        skew = output.logits.copy()
        skew[:, 0] += 0.01 * ids.shape[1]
        return Output(skew, output.contributions)


def test_an_engine_that_depends_on_the_batch_is_found_out_and_runs_alone() -> None:
    with serving(fake_deployment(LeakyEngine(len(LABELS)))) as served:
        info = served.get("/info").json()
        assert info["self_test"]["largest_difference"] > 1e-4
        assert info["self_test"]["batching"] is False
        assert info["workers"]["batch_below_tokens"] == 0
        engine = served.service.deployment.engine
        assert isinstance(engine, LeakyEngine)
        engine.runs.clear()
        served.post("/classify", json={"input": ["a b c"] * 20})
        assert [len(run) for run in engine.runs] == [1] * 20


def test_the_deadline_drops_queued_work() -> None:
    gate = threading.Event()
    engine = FakeEngine(len(LABELS))
    with serving(fake_deployment(engine), workers=1, long_workers=0) as served:
        engine.seconds = lambda _batch, _n: float(not gate.wait(20))
        engine.runs.clear()
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(served.classify)
            wait_until(lambda: len(engine.runs) == 1)
            late = served.classify("too late", timeout_ms=100)
            assert late.status_code == 504
            assert late.json()["type"] == "urn:longdoc:problem:deadline-passed"
            gate.set()
            assert first.result(20).status_code == 200
        assert len(engine.runs) == 1


def test_a_full_queue_refuses_honestly_and_recovers() -> None:
    gate = threading.Event()
    engine = FakeEngine(len(LABELS), seconds=lambda _batch, n: 0.0005 * n)
    policy: dict[str, Any] = {
        "workers": 1,
        "long_workers": 0,
        "queue_seconds": 0.2,
        "max_batch_size": 1,
    }
    text = "word " * 50
    with serving(fake_deployment(engine), **policy) as served:
        engine.seconds = lambda _batch, _n: float(not gate.wait(20))
        with ThreadPoolExecutor(30) as pool:
            asked = [pool.submit(served.classify, text) for _ in range(30)]
            wait_until(lambda: served.service.metrics.rejected._value.get() > 0)
            refused = served.classify(text)
            assert refused.status_code == 429
            assert int(refused.headers["retry-after"]) >= 1
            assert served.get("/readyz").status_code == 200
            wait_until(lambda: served.service.running.scheduler.backlog > 0.2)
            gate.set()
            statuses = {future.result(20).status_code for future in asked}
        assert statuses == {200, 429}
        wait_until(lambda: served.service.running.scheduler.depth == 0)
        assert served.classify(text).status_code == 200


def test_draining_refuses_new_work_and_answers_what_was_accepted() -> None:
    gate = threading.Event()
    engine = FakeEngine(len(LABELS))
    with serving(fake_deployment(engine)) as served:
        engine.seconds = lambda _batch, _n: float(not gate.wait(20))
        engine.runs.clear()
        with ThreadPoolExecutor(1) as pool:
            accepted = pool.submit(served.classify)
            wait_until(lambda: len(engine.runs) == 1)
            served.service.drain()
            refused = served.classify()
            assert refused.status_code == 503
            assert refused.json()["type"] == "urn:longdoc:problem:draining"
            assert int(refused.headers["retry-after"]) >= 1
            assert served.get("/healthz").status_code == 200
            assert served.get("/readyz").status_code == 503
            gate.set()
            assert accepted.result(20).status_code == 200


def test_bodies_of_all_requests_together_are_bounded() -> None:
    with serving(max_held_bytes=5000) as served:
        assert served.classify("word " * 500).status_code == 200
        assert served.classify("word " * 2000).status_code == 429
        assert served.classify("word " * 500).status_code == 200
