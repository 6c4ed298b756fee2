"""Made-up results in the form of real ones, for tests of what reads them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from benchmarks.records import (
    UNFUSED,
    Bundled,
    Environment,
    Figure,
    LengthBucket,
    LoadTest,
    Measurement,
    Requests,
    Run,
    Second,
)
from benchmarks.store import Store
from models.bundle import REFERENCE, FileEntry, Graph, Manifest
from models.config import ModelConfig
from models.description import CARD, TABLES, TOKENIZER, WEIGHTS
from models.mechanisms import ATTENTIONS

SERIES = ("softmax", UNFUSED, *(n for n in ATTENTIONS.names() if n != "softmax"))
LENGTHS = tuple(2**power for power in range(7, 17))
MOMENT = "2026-01-02T03:04:05+00:00"


def environment(**values: Any) -> Environment:
    """A machine that is not this one."""
    about: dict[str, Any] = {
        "cpu": "Test CPU",
        "cores": 2,
        "memory_bytes": 8 << 30,
        "gpu": None,
        "container_cores": None,
        "container_memory_bytes": None,
        "system": "Linux",
        "versions": {"python": "3.11"},
        "commit": "0" * 40,
    }
    return Environment(**(about | values))


def a_run(name: str = "run-1", **values: Any) -> Run:
    """A finished run on an idle machine."""
    about: dict[str, Any] = {
        "run": name,
        "started": MOMENT,
        "finished": MOMENT,
        "command": "longdoc bench",
        "plan": "plan",
        "environment": environment(),
        "load_before": 0.0,
    }
    return Run(**(about | values))


def a_measurement(
    attention: str = "linear", length: int = 512, seconds: float = 0.01, **values: Any
) -> Measurement:
    """A measurement whose median is `seconds`."""
    about: dict[str, Any] = {
        "run": "run-1",
        "created": MOMENT,
        "attention": attention,
        "engine": "onnxruntime",
        "device": "cpu",
        "precision": "fp32",
        "threads": 1,
        "length": length,
        "batch": 1,
        "status": "measured",
        "bundle": Bundled(name=f"elife-{attention}".replace("_", "-"), digest="0" * 64,
                          weights="random"),
        "samples_seconds": tuple(seconds * factor for factor in (0.95, 0.98, 1, 1.05, 1.2)),
        "rounds": 5,
        "peak_bytes": length * 4096,
        "baseline_bytes": 80_000_000,
    }  # fmt: skip
    return Measurement(**(about | values))


def cost(attention: str, length: int) -> tuple[float, int]:
    """Seconds and bytes as they might be."""
    spread = 1 + SERIES.index(attention) / 10
    quadratic = attention == UNFUSED or not ATTENTIONS[attention].linear
    if attention == UNFUSED:
        return 2e-8 * length**2 + 1e-5 * length, 20 * length**2
    if quadratic:
        return spread * 1e-8 * length**2 + 1e-5 * length, 5000 * length
    return spread * 2e-5 * length + 2e-3, int(spread * 8000 * length)


def measurements(run: str = "run-1") -> list[Measurement]:
    """A full run of two engines; what is too large is left out with a reason."""
    found = []
    for attention in SERIES:
        for engine, factor in (("onnxruntime", 1.0), ("torch", 1.3)):
            for length in LENGTHS:
                seconds, peak = cost(attention, length)
                values: dict[str, Any] = {"engine": engine, "run": run, "peak_bytes": peak}
                if peak > 8e9:
                    values |= {"status": "skipped", "reason": "predicted to need too much",
                               "samples_seconds": (), "peak_bytes": None}  # fmt: skip
                found.append(a_measurement(attention, length, seconds * factor, **values))
    return found


def a_load_test(offered: float = 20.0, **values: Any) -> tuple[LoadTest, Requests]:
    """A load test with its raw requests; latency grows with the offered load."""
    randomness = random.Random(offered)
    seconds = tuple(randomness.lognormvariate(-4 + offered / 40, 0.4) for _ in range(200))
    ordered = sorted(seconds)
    requests = Requests(
        due=tuple(i / offered for i in range(200)),
        seconds=seconds,
        tokens=tuple(randomness.randint(32, 4096) for _ in range(200)),
        status=(200,) * 198 + (429, 0),
        request=("interactive",) * 200,
    )
    p50, p90, p95, p99 = (ordered[i] for i in (100, 180, 190, 198))
    about: dict[str, Any] = {
        "run": "load-1",
        "created": MOMENT,
        "server": "longdoc",
        "sweep": "sweep-1",
        "scenario": "log-normal",
        "attention": "nystromformer",
        "engine": "onnxruntime:cpu",
        "precision": "fp32",
        "model": "open",
        "offered_per_second": offered,
        "users": None,
        "seconds": 200 / offered,
        "warm_up_seconds": 5.0,
        "requests": 200,
        "documents": 200,
        "tokens": sum(requests.tokens),
        "p50": p50,
        "p90": p90,
        "p95": p95,
        "p99": p99,
        "answered_per_second": offered,
        "errors": {"429 queue full": 1, "connection": 1},
        "by_length": tuple(
            LengthBucket(low=low, high=low * 4, requests=50, errors=0, p50=p50 * grow,
                         p95=p95 * grow, p99=p99 * grow)
            for low, grow in ((32, 0.3), (128, 0.5), (512, 1.0), (2048, 1.5))
        ),
        "by_second": tuple(
            Second(at=at, sent=int(offered), answered=int(offered), errors=0, p50=p50,
                   p99=p99 * randomness.uniform(0.8, 1.2), memory_bytes=300_000_000)
            for at in range(10)
        ),
        "service_memory_bytes": 300_000_000,
        "metrics_before": {"longdoc_requests_total": 0.0},
        "metrics_after": {"longdoc_requests_total": 200.0},
        "generator_bottleneck": False,
    }  # fmt: skip
    return LoadTest(**(about | values)), requests


def fidelity(run: str = "run-1") -> list[Figure]:
    """Errors of two approximations on both kinds of data."""
    return [
        Figure(
            run=run, created=MOMENT, name="fidelity", subject=ATTENTIONS[attention].title,
            unit="relative error", values=tuple(scale / budget for scale in (8.0, 9.0, 10.0)),
            conditions={"attention": attention, "approximates": "softmax", "data": data, "n": 2048,
                        "budget_name": ATTENTIONS[attention].budget, "budget": budget},
        )
        for attention in ("nystromformer", "performer")
        for data in ("random", "smooth")
        for budget in (16, 64, 256)
    ]  # fmt: skip


def fill(path: Path) -> Store:
    """A results file with a full run, a sweep of load tests and fidelity."""
    store = Store(path)
    store.append(a_run())
    for record in measurements():
        store.append(record)
    store.append(a_run("load-1", command="longdoc loadtest"))
    for offered in (10.0, 20.0, 40.0, 60.0):
        store.append(*a_load_test(offered))
    for figure in fidelity():
        store.append(figure)
    return store


def fill_bundles(root: Path) -> Path:
    """Folders with manifests alone, as the dashboard reads them, for two data sets."""
    entry = FileEntry(sha256="0" * 64, bytes=1)
    names = (WEIGHTS, TABLES, TOKENIZER, REFERENCE, CARD, "c.json")
    for dataset, base, tokens in (("elife", 0.70, 12_000), ("imdb", 0.86, 300)):
        for index, attention in enumerate(ATTENTIONS.names()):
            accuracy = base + index / 200
            name = f"{dataset}-{attention}".replace("_", "-")
            manifest = Manifest(
                name=name,
                task="tells subjects apart",
                labels=("a", "b"),
                config=ModelConfig.from_preset("base", vocab_size=100, num_labels=2,
                                               attention=attention),
                max_tokens=4096,
                tokenizer="bpe",
                evaluation=_evaluation(accuracy, tokens),
                version="1",
                provenance={},
                graphs={"fp32": Graph(file=None, certificate="c.json", valid=False, reason="")},
                files=dict.fromkeys(names, entry),
            )  # fmt: skip
            (root / name).mkdir(parents=True)
            (root / name / "manifest.json").write_text(manifest.model_dump_json())
    return root


def _evaluation(accuracy: float, tokens: int) -> dict[str, Any]:
    return {
        "documents": 1000,
        "tokens": 1000 * tokens,
        "accuracy": accuracy,
        "macro_f1": accuracy - 0.02,
        "interval_95": [accuracy - 0.015, accuracy + 0.015],
        "baseline": {"method": "TF-IDF + logistic regression", "accuracy": 0.73, "macro_f1": 0.7},
        "by_read": {
            "documents": 1000,
            "rows": [
                {"tokens": read, "accuracy": accuracy - loss, "macro_f1": accuracy - loss - 0.02}
                for read, loss in ((512, 0.1), (2048, 0.05), (8192, 0.01), (None, 0.0))
            ],
        },
    }
