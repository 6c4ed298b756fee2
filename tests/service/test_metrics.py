"""Metrics: what is counted of answers and requests, and a format that others read."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from service.metrics import Metrics
from service.pipeline import Answer
from service.text.merge import Result, Tokens


def result(total: int, used: int, windows: int = 1) -> Result:
    return Result("a", 0.5, [], Tokens(total, used, windows, used < total), [])


def samples(metrics: Metrics) -> dict[tuple[str, str], float]:
    return {
        (sample.name, ",".join(f"{k}={v}" for k, v in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(metrics.text().decode())
        for sample in family.samples
    }


def test_answers_are_counted() -> None:
    metrics = Metrics()
    results = [result(100, 100), result(500, 128), result(300, 300, windows=3)]
    assert metrics.count_answer(Answer(results, 0.02, 0.0, 0.1, 0.12)) == 528
    found = samples(metrics)
    assert found["longdoc_documents_total", ""] == 3
    assert found["longdoc_tokens_total", ""] == 528
    assert found["longdoc_unread_tokens_total", ""] == 372
    assert found["longdoc_truncated_documents_total", ""] == 1
    assert found["longdoc_windowed_documents_total", ""] == 1
    assert found["longdoc_tokenize_seconds_count", ""] == 1
    assert found["longdoc_document_tokens_bucket", "le=128.0"] == 1
    assert found["longdoc_document_tokens_bucket", "le=512.0"] == 3
    assert found["longdoc_document_tokens_sum", ""] == 900


def test_requests_are_counted_by_route_and_status() -> None:
    metrics = Metrics()
    for status in (200, 429, 499, 429):
        metrics.count_request("/classify", status, 0.02)
    found = samples(metrics)
    assert found["longdoc_requests_total", "route=/classify,status=429"] == 2
    assert found["longdoc_rejected_requests_total", ""] == 2
    assert found["longdoc_disconnected_requests_total", ""] == 1
    assert found["longdoc_request_seconds_bucket", "le=0.025,route=/classify"] == 4
