"""MLServer: its adaptive batching over a custom runtime, with parallel workers."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import numpy as np
from mlserver import MLModel
from mlserver.codecs import NumpyCodec, StringCodec
from mlserver.types import InferenceRequest, InferenceResponse

from benchmarks.peers.servers.model import ADDRESS, Model, bundle_path, port, settings

NAME = "classifier"


class Classifier(MLModel):
    """The runtime; scores come in the order of the bundle's labels."""

    async def load(self) -> bool:
        """Load the model."""
        self.model = Model(bundle_path(), settings()["threads"])
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Classify what the batcher has put together: a worker one batch after another.

        Without workers this is the process that takes requests, which must not stand still.
        """
        texts = StringCodec.decode_input(payload.inputs[0])
        if settings()["workers"]:
            answers = self.model.classify(texts)
        else:
            answers = await asyncio.to_thread(self.model.classify, texts)
        scores = np.array([list(answer["scores"].values()) for answer in answers], np.float32)
        labels = [answer["label"] for answer in answers]
        return InferenceResponse(
            model_name=self.name,
            outputs=[
                StringCodec.encode_output("label", labels),
                NumpyCodec.encode_output("scores", scores),
            ],
        )


def write_settings(folder: Path) -> None:
    """The two files from which MLServer reads what to serve and how."""
    given = settings()
    server = {
        "debug": False,
        "host": ADDRESS,
        "http_port": port(),
        "grpc_port": 0,
        "metrics_endpoint": None,
        "parallel_workers": given["workers"],
        "environments_dir": str(folder),
    }
    model = {
        "name": NAME,
        "implementation": "benchmarks.peers.servers.with_mlserver.Classifier",
        "max_batch_size": given["batch"] if given["batch"] > 1 else 0,
        "max_batch_time": given["wait_ms"] / 1000,
    }
    (folder / "settings.json").write_text(json.dumps(server), encoding="utf-8")
    (folder / "model-settings.json").write_text(json.dumps(model), encoding="utf-8")


if __name__ == "__main__":
    write_settings(Path.cwd())
    command = [sys.executable, "-m", "mlserver.cli.main", "start", "."]
    os.execv(sys.executable, command)  # noqa: S606
