"""Ray Serve: `serve.batch`, one replica per core or one with all cores."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import ray
from ray import serve
from starlette.requests import Request

from benchmarks.peers.servers.model import ADDRESS, Answer, Model, bundle_path, port, settings

_BATCH: dict[str, Any] = {"max_batch_size": 8, "batch_wait_timeout_s": 0.01}


class Classifier:
    """A replica: the model, and the batches that its requests form."""

    def __init__(self, bundle: str, given: dict[str, Any]) -> None:
        self.model = Model(Path(bundle), given["threads"])
        batches: Any = self.classify  # the decorator adds the setters
        batches.set_max_batch_size(given["batch"])
        batches.set_batch_wait_timeout_s(given["wait_ms"] / 1000)

    @serve.batch(**_BATCH)
    async def classify(self, texts: list[str]) -> list[Answer]:
        """Classify in a thread, so that the replica goes on taking requests."""
        return await asyncio.to_thread(self.model.classify, texts)

    async def __call__(self, request: Request) -> Answer:
        """Answer one request."""
        answer: Answer = await self.classify((await request.json())["input"])
        return answer


if __name__ == "__main__":
    chosen = settings()
    cores = len(os.sched_getaffinity(0))
    ray.init(
        num_cpus=cores, include_dashboard=False, log_to_driver=False, _temp_dir=str(Path.cwd())
    )
    serve.start(http_options={"host": ADDRESS, "port": port()})
    deployment: Any = serve.deployment(Classifier)
    application = deployment.options(
        num_replicas=chosen["replicas"],
        max_ongoing_requests=chosen["ongoing"],
        ray_actor_options={"num_cpus": cores / chosen["replicas"]},
    ).bind(str(bundle_path()), chosen)
    serve.run(application, route_prefix="/classify")
    while True:
        time.sleep(3600)
