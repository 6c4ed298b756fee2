"""A baseline: plain FastAPI, no batching, as its tutorial has it.

A synchronous route runs in the framework's thread pool; each call tokenizes and runs the same
graph on one thread, which served this baseline better than all cores for each call.
"""

from __future__ import annotations

import sys

import numpy as np
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from tokenizers import Tokenizer

from models.bundle import load_bundle
from service.engines import open_engine


class Text(BaseModel):
    """What a client sends."""

    input: str


def create_app(bundle_path: str) -> FastAPI:
    """The application."""
    bundle = load_bundle(bundle_path)
    engine = open_engine(bundle, threads=1)
    tokenizer = Tokenizer.from_file(str(bundle.file("tokenizer.json")))
    manifest = bundle.manifest
    app = FastAPI()

    @app.get("/readyz")
    def ready() -> dict[str, bool]:
        return {"ready": True}

    @app.post("/classify")
    def classify(text: Text) -> dict[str, object]:
        ids = tokenizer.encode_batch_fast([text.input], add_special_tokens=False)[0].ids
        ids = ids[: manifest.max_tokens]
        logits = engine.run(np.array([ids]), np.array([len(ids)])).logits[0]
        scores = np.exp(logits - logits.max())
        scores /= scores.sum()
        best = int(scores.argmax())
        return {"label": manifest.labels[best], "score": float(scores[best])}

    return app


if __name__ == "__main__":
    uvicorn.run(create_app(sys.argv[1]), port=int(sys.argv[2]), log_level="error", access_log=False)
