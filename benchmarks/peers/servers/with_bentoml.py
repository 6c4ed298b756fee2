"""BentoML: its adaptive batching, one worker process per core or one with all cores."""

from __future__ import annotations

import os
import sys

import bentoml

from benchmarks.peers.servers.model import ADDRESS, Answer, Model, bundle_path, port, settings

_given = settings()


@bentoml.service(
    workers=_given["workers"],
    traffic={"timeout": 60, "concurrency": _given["batch"]},
    logging={"access": {"enabled": False}},
    metrics={"enabled": False},
)
class Classifier:
    """The service."""

    def __init__(self) -> None:
        self.model = Model(bundle_path(), _given["threads"])

    @bentoml.api(
        route="/classify",
        batchable=_given["batch"] > 1,
        max_batch_size=max(2, _given["batch"]),
        max_latency_ms=_given["max_latency_ms"],
    )
    def classify(self, input: list[str]) -> list[Answer]:  # noqa: A002 - the request's field
        """Classify what the dispatcher has put together."""
        return self.model.classify(input)


if __name__ == "__main__":
    name = "benchmarks.peers.servers.with_bentoml:Classifier"
    command = ["serve", name, "--host", ADDRESS, "--port", str(port()), "--quiet"]
    os.execv(sys.executable, [sys.executable, "-m", "bentoml", *command])  # noqa: S606
