"""A baseline: FastAPI with the usual dynamic batching.

Requests are taken in the order of arrival, up to eight at a time or what came within five
milliseconds, padded to the longest, and run on all cores.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

import numpy as np
import uvicorn
from fastapi import FastAPI
from numpy.typing import NDArray
from pydantic import BaseModel
from tokenizers import Tokenizer

from models.bundle import load_bundle
from service.engines import open_engine
from service.scheduling.cores import usable_cores

LARGEST_BATCH = 8
WAIT_SECONDS = 0.005

Waiting = tuple[str, asyncio.Future[NDArray[np.float32]]]


class Text(BaseModel):
    """What a client sends."""

    input: str


def create_app(bundle_path: str) -> FastAPI:
    """The application."""
    bundle = load_bundle(bundle_path)
    engine = open_engine(bundle, threads=usable_cores())
    tokenizer = Tokenizer.from_file(str(bundle.file("tokenizer.json")))
    manifest = bundle.manifest
    queue: asyncio.Queue[Waiting] = asyncio.Queue()
    worker = ThreadPoolExecutor(1)

    def run(texts: list[str]) -> NDArray[np.float32]:
        encodings = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        lengths = np.array([min(len(e.ids), manifest.max_tokens) for e in encodings])
        ids = np.zeros((len(texts), lengths.max()), dtype=np.int64)  # (batch, n)
        for row, encoding, length in zip(ids, encodings, lengths, strict=True):
            row[:length] = encoding.ids[:length]
        return engine.run(ids, lengths).logits

    async def batches() -> None:
        loop = asyncio.get_running_loop()
        while True:
            batch = [await queue.get()]
            deadline = loop.time() + WAIT_SECONDS
            while len(batch) < LARGEST_BATCH:
                try:
                    batch.append(
                        await asyncio.wait_for(queue.get(), max(0.0, deadline - loop.time()))
                    )
                except TimeoutError:
                    break
            logits = await loop.run_in_executor(worker, run, [text for text, _ in batch])
            for row, (_, future) in zip(logits, batch, strict=True):
                if not future.done():
                    future.set_result(row)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        task = asyncio.create_task(batches())
        yield
        task.cancel()

    app = FastAPI(lifespan=lifespan)

    @app.get("/readyz")
    async def ready() -> dict[str, bool]:
        return {"ready": True}

    @app.post("/classify")
    async def classify(text: Text) -> dict[str, object]:
        future: asyncio.Future[NDArray[np.float32]] = asyncio.get_running_loop().create_future()
        queue.put_nowait((text.input, future))
        logits = await future
        scores = np.exp(logits - logits.max())
        scores /= scores.sum()
        best = int(scores.argmax())
        return {"label": manifest.labels[best], "score": float(scores[best])}

    return app


if __name__ == "__main__":
    uvicorn.run(create_app(sys.argv[1]), port=int(sys.argv[2]), log_level="error", access_log=False)
