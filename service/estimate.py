"""What a request would take, without running it: for `POST /estimate`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from service.errors import DeadlinePassed
from service.pipeline import Pipeline
from service.scheduling.jobs import Call, Caller
from service.text.tokenizer import Reading


@dataclass(slots=True)
class Estimate:
    """What classifying one text would take."""

    tokens: int
    windows: int
    seconds: Annotated[float, Field(description="Predicted work of one core.")]
    memory_bytes: Annotated[int, Field(description="Predicted memory of its longest run.")]


@dataclass(slots=True)
class Forecast:
    """What a request would take if it came now."""

    estimates: list[Estimate]
    queue_seconds: Annotated[float, Field(description="Predicted wait before it starts.")]
    latency_seconds: Annotated[float, Field(description="Predicted time until its answer.")]
    would_be_admitted: bool


async def estimate(pipeline: Pipeline, texts: Sequence[str], timeout: float) -> Forecast:
    """What classifying the texts would take, without running them."""
    caller = Caller(time.monotonic())
    try:
        async with asyncio.timeout(timeout):
            estimates = [await _estimate(pipeline, text, caller) for text in texts]
    except TimeoutError:
        raise DeadlinePassed(timeout) from None
    heaviest = max(estimate.seconds for estimate in estimates)
    policy, admission = pipeline.scheduler.policy, pipeline.scheduler.admission
    wait = admission.expected_wait(heaviest)
    spread = sum(estimate.seconds for estimate in estimates) / policy.workers
    per_window = max(e.seconds / e.windows for e in estimates)
    return Forecast(
        estimates,
        queue_seconds=wait,
        latency_seconds=wait + admission.slowdown * max(spread, per_window),
        would_be_admitted=wait <= policy.queue_seconds,
    )


async def _estimate(pipeline: Pipeline, text: str, caller: Caller) -> Estimate:
    call = Call(caller, pipeline.reader.seconds(text), 0.0, lambda: pipeline.reader.read(text))
    pipeline.scheduler.submit(call)
    call.future.add_done_callback(lambda _: pipeline.room.look())
    reading: Reading = (await asyncio.wrap_future(call.future)).value
    longest = max(len(window) for window in reading.windows)
    return Estimate(
        tokens=reading.total,
        windows=len(reading.windows),
        seconds=pipeline.work_of(reading.total),
        memory_bytes=round(longest * pipeline.bytes_per_token),
    )
