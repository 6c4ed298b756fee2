"""Plain FastAPI: a synchronous route in the framework's thread pool, no batching."""

from __future__ import annotations

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

from benchmarks.peers.servers.model import ADDRESS, Answer, Model, bundle_path, port, settings


class Text(BaseModel):
    """What a client sends."""

    input: str


def create_app() -> FastAPI:
    """The application, made once in each worker process."""
    model = Model(bundle_path(), settings()["threads"])
    app = FastAPI()

    @app.post("/classify")
    def classify(text: Text) -> Answer:
        return model.classify([text.input])[0]

    return app


if __name__ == "__main__":
    uvicorn.run(
        "benchmarks.peers.servers.with_fastapi:create_app",
        factory=True,
        host=ADDRESS,
        port=port(),
        workers=settings()["workers"],
        log_level="warning",
        access_log=False,
    )
