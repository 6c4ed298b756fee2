"""The OpenAPI document, and a tool that others wrote to look for inputs that break it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.errors import STATUSES
from tests.support.serving import Served, serving

# 504 is the honest answer to a request that allows one millisecond, and 429 and 503 are part
# of the contract; any other 5xx is a failure.
CONFIG = """
[checks]
not_a_server_error.expected-statuses = ["2xx", "4xx", 504]

[[operations]]  # what is wrong with a line is told on its line
include-path = "/classify/stream"
checks.negative_data_rejection.enabled = false

[[operations]]  # no schema can say that a tensor's shape must fit its data
include-path = "/v2/models/{name}/infer"
checks.positive_data_acceptance.enabled = false
"""
HOOKS = """
import json
import schemathesis

@schemathesis.serializer("application/x-ndjson")
def ndjson(ctx, value):
    text = value if isinstance(value, str) else json.dumps(value, default=repr)
    return text.encode("utf-8", "surrogatepass")

@schemathesis.hook
def map_path_parameters(ctx, path_parameters):
    return {**path_parameters, "name": "fake-linear"} if path_parameters else path_parameters
"""


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving() as running:
        yield running


def test_every_error_that_a_route_documents_is_a_problem(served: Served) -> None:
    document = served.get("/openapi.json").json()
    statuses = {str(status) for status, _, _ in STATUSES.values()}
    for path in ("/classify", "/estimate"):
        answers = document["paths"][path]["post"]["responses"]
        for status in set(answers) - {"200"}:
            assert status in statuses
            assert "application/problem+json" in answers[status]["content"]


@pytest.mark.slow
def test_schemathesis_finds_no_failure(served: Served, tmp_path: Path) -> None:
    (tmp_path / "schemathesis.toml").write_text(CONFIG)
    (tmp_path / "hooks.py").write_text(HOOKS)
    command = [
        str(Path(sys.executable).with_name("schemathesis")),
        "run",
        served.url + "/openapi.json",
        "--phases",
        "examples,coverage,fuzzing",
        "--max-examples",
        "40",
        "--seed",
        "7",
        "--no-color",
    ]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "SCHEMATHESIS_HOOKS": "hooks", "PYTHONPATH": str(tmp_path)},
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
