"""The serving benchmark's parts: documents, load generator, report."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from benchmarks.service import batching, plain
from benchmarks.service.bare import ALONE, TOGETHER, plan_runs
from benchmarks.service.documents import Document, log_normal_lengths, make_documents
from benchmarks.service.load import Sample, closed_loop, open_loop, percentile, span
from benchmarks.service.measures import recovered_after
from benchmarks.service.report import markdown
from benchmarks.service.servers import BATCHING, OURS, PLAIN, Running
from benchmarks.service.usage import Meter
from service.settings import Settings
from service.startup.deployment import load_deployment
from tests.support.serving import serving, tokenizer
from tests.support.small_bundle import SENTENCES, shared_bundle


def test_documents_have_the_lengths_asked_for() -> None:
    documents = make_documents(tokenizer(), [1, 40, 333], seed=1)
    for document, length in zip(documents, [1, 40, 333], strict=True):
        found = len(tokenizer().encode(document.text).ids)
        assert found == document.tokens
        assert abs(found - length) <= 3


def test_lengths_are_seeded_and_within_bounds() -> None:
    lengths = log_normal_lengths(1000, seed=1)
    assert lengths == log_normal_lengths(1000, seed=1)
    assert min(lengths) >= 32
    assert max(lengths) <= 16_384


def test_closed_and_open_load_reach_a_real_server() -> None:
    documents = make_documents(tokenizer(), [20, 30, 40], seed=1)
    with serving() as served:
        closed = asyncio.run(closed_loop(served.port, documents * 10, clients=4))
        offered = asyncio.run(open_loop(served.port, documents, rate=50, seconds=1, seed=1))
    assert [sample.status for sample in closed] == [200] * 30
    assert {sample.status for sample in offered} == {200}
    assert len(offered) == 50
    assert span(closed) > 0
    assert all(sample.seconds > 0 for sample in offered)


def test_a_server_that_is_not_there_is_a_failure_not_a_crash() -> None:
    with serving() as served:
        port = served.port
    documents = make_documents(tokenizer(), [20], seed=1)
    assert [s.status for s in asyncio.run(closed_loop(port, documents, clients=1))] == [0]


def test_runs_of_the_bare_engine_hold_every_document_once() -> None:
    lengths = [512, 510, 40, 41, 2000, 511, 42, 43, 44, 600]
    documents = [Document("", tokens) for tokens in lengths]
    alone = plan_runs(documents, ALONE)
    together = [[document.tokens for document in run] for run in plan_runs(documents, TOGETHER)]
    assert [run[0].tokens for run in alone] == sorted(lengths)
    assert together == [[40, 41, 42, 43, 44], [510, 511], [512], [600], [2000]]


def test_the_processor_is_shared_out_among_server_and_generator() -> None:
    meter = Meter(Running(0, os.getpid(), 0.0))
    until = time.process_time() + 0.2
    while time.process_time() < until:
        pass
    cores = meter.cores()
    assert 0 < cores["generator"] <= 1.1
    assert cores["server"] > 0


def test_percentiles_are_of_answered_requests() -> None:
    samples = [Sample(1, 0.0, seconds, 200) for seconds in (1.0, 2.0, 3.0)]
    assert percentile([*samples, Sample(1, 0.0, 99.0, 429)], 50) == 2.0


@pytest.mark.parametrize(
    ("slow", "after"),
    [([], 0.0), (range(10), 10.0), ([50], 0.0), (range(100), float("inf"))],
)
def test_recovery_is_when_slow_answers_are_rare_again(slow: Sequence[int], after: float) -> None:
    samples = [Sample(64, float(at), 1.0 if at in slow else 0.01, 200) for at in range(100)]
    found = recovered_after(samples, bound=0.1)
    assert found == pytest.approx(after, abs=6)  # a few of the slow ones may be the usual ones


def test_the_report_shows_every_measure_and_its_goals() -> None:
    server: dict[str, Any] = {
        "documents_per_second": 100.0,
        "p50": 0.05,
        "p99": 1.0,
        "p99_short": 0.1,
        "p50_short": 0.02,
        "p99_long": 0.9,
        "peak_bytes": 2**29,
    }
    rounds = [{OURS: server, PLAIN: server, BATCHING: server}]
    mixed = {
        "throughput_over_plain": 1.1,
        "throughput_over_batching": 2.5,
        "p50_over_plain": 0.5,
        "p50_over_batching": 0.1,
        "p99_over_plain": 1.2,
    }
    behind = {
        "p99_short_over_plain": 0.4,
        "p99_long_over_plain": 0.9,
        "peak_bytes_over_plain": 0.7,
    }
    page = markdown(
        {
            "bundle": "a-bundle",
            "date": "2026-01-01",
            "plan_name": "full",
            "file": "result.json",
            "environment": {"cpu": "a processor", "cores": 2, "python": "3", "onnxruntime": "1"},
            "measures": {
                "overhead": {
                    "512": {
                        "bare": 100.0,
                        "best_schedule": "alone",
                        "served": 95.0,
                        "rounds": [{"stolen": 0.01, "again": 2}, {"stolen": 0.02, "again": 1}],
                        "ratios": [0.91, 0.95, 0.99],
                        "ratio": 0.95,
                    }
                },
                "mixed": {
                    "rounds": rounds,
                    "ratios": {name: [value] for name, value in mixed.items()},
                    **mixed,
                },
                "short_behind_long": {
                    "rate": 40.0,
                    "rounds": rounds,
                    "ratios": {name: [value - 0.1, value] for name, value in behind.items()},
                    **behind,
                },
                "overload": {
                    "rounds": [{}, {}],
                    "ratios": {
                        "goodput_over_peak": [0.89, 1.01],
                        "token_goodput_over_peak": [0.93, 0.93],
                    },
                    "offered_per_second": 500.0,
                    "goodput_over_peak": 0.95,
                    "token_goodput_over_peak": 0.93,
                    "cores": {"server": 1.8, "generator": 0.1, "others": 0.0},
                    "statuses": {"200": 10, "429": 40},
                    "refusal_seconds_p50": 0.004,
                    "peak_bytes": 2**29,
                    "recovered_after_seconds": 1.0,
                },
                "cold_start": {"seconds": [1.0, 2.0], "median": 1.5, "most": 2.0},
            },
        }
    )
    for words in (
        "| 512 | 100.0 | alone | 95.0 | 95.0% | 91.0% to 99.0% | reached |",
        "p50 over plain, at most a third: 0.50 (0.50 to 0.50), missed",
        "p99 of short ones over plain, at most 0.5: 0.40 (0.30 to 0.40), reached",
        "service 1.80, load generator 0.10, other programs 0.00",
        "10 × 200, 40 × 429",
        "95.0% (89.0% to 101.0%) of the peak, at least 90%: reached",
        "measured again, 3 times in all; of what is shown, they took 1.5% on average and 2.0% at",
        "| 1.50 s | 2.00 s | 2 |",
    ):
        assert words in page


@pytest.mark.parametrize("baseline", [plain, batching])
def test_the_baselines_answer_like_the_service(baseline: ModuleType) -> None:
    bundle = str(shared_bundle().path)
    app = baseline.create_app(bundle)
    answers = asyncio.run(_ask(app))
    with serving(load_deployment(Settings(bundle=bundle))) as served:
        ours = served.post("/classify", json={"input": list(SENTENCES)}).json()["results"]
    for theirs, result in zip(answers, ours, strict=True):
        assert theirs["label"] == result["label"]
        assert theirs["score"] == pytest.approx(result["score"], abs=1e-4)


async def _ask(app: FastAPI) -> list[dict[str, Any]]:
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://baseline") as client,
    ):
        asked = [client.post("/classify", json={"input": text}) for text in SENTENCES]
        return [response.json() for response in await asyncio.gather(*asked)]
