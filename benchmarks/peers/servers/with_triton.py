"""NVIDIA Triton by PyTriton: its dynamic batcher over a Python model, one instance per core."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pytriton.decorators import batch
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig

from benchmarks.peers.servers.model import ADDRESS, Model, bundle_path, port, settings


def infer_with(model: Model) -> Any:
    """An instance's function: the texts of a batch to their labels and scores."""

    @batch
    def infer(text: NDArray[np.object_]) -> dict[str, NDArray[Any]]:
        answers = model.classify([each.decode() for each in text[:, 0]])
        labels = [[answer["label"].encode()] for answer in answers]
        scores = [list(answer["scores"].values()) for answer in answers]
        return {"label": np.array(labels), "scores": np.array(scores, np.float32)}

    return infer


if __name__ == "__main__":
    given = settings()
    models = [Model(bundle_path(), given["threads"]) for _ in range(given["workers"])]
    batcher = DynamicBatcher(max_queue_delay_microseconds=1000 * given["wait_ms"])
    config = TritonConfig(
        http_address=ADDRESS,
        http_port=port(),
        allow_grpc=False,
        allow_metrics=False,
    )
    with Triton(config=config, workspace=Path.cwd() / "triton") as triton:
        triton.bind(
            "classifier",
            infer_func=[infer_with(model) for model in models],
            inputs=[Tensor(name="text", dtype=bytes, shape=(1,))],
            outputs=[
                Tensor(name="label", dtype=bytes, shape=(1,)),
                Tensor(name="scores", dtype=np.float32, shape=(len(models[0].labels),)),
            ],
            config=ModelConfig(max_batch_size=given["batch"], batcher=batcher),
        )
        triton.serve()
