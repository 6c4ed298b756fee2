"""A bundle's classifier with `tokenizers` and ONNX Runtime alone: what every peer serves."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray
from tokenizers import Tokenizer

ADDRESS = "127.0.0.1"


#: What a peer answers for one document: its label, and the score of every label.
Answer = dict[str, Any]


class Model:
    """Tokenizes texts and classifies them together, padded to the longest."""

    def __init__(self, bundle: Path, threads: int) -> None:
        manifest = json.loads((bundle / "manifest.json").read_text(encoding="utf-8"))
        self.labels: list[str] = manifest["labels"]
        self.max_tokens: int = manifest["max_tokens"]
        self.tokenizer = Tokenizer.from_file(str(bundle / "tokenizer.json"))
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.enable_mem_pattern = False  # patterns are kept per shape, and every length is one
        self.session = ort.InferenceSession(
            bundle / "model.onnx", options, providers=["CPUExecutionProvider"]
        )

    def classify(self, texts: list[str]) -> list[Answer]:
        """Classify texts in one run of the graph."""
        return self.run(self.tokenize(texts))

    def tokenize(self, texts: list[str]) -> list[list[int]]:
        """The tokens of each text."""
        encodings = self.tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return [encoding.ids[: self.max_tokens] for encoding in encodings]

    def run(self, rows: list[list[int]]) -> list[Answer]:
        """Run the graph once over the tokens of several documents."""
        lengths = np.array([len(row) for row in rows], dtype=np.int64)
        ids = np.zeros((len(rows), int(lengths.max())), dtype=np.int64)  # (batch, n)
        for line, row in zip(ids, rows, strict=True):
            line[: len(row)] = row
        inputs = {"ids": ids, "lengths": lengths}
        logits: NDArray[np.float32] = self.session.run(["logits"], inputs)[0]
        return [self._answer(scores) for scores in _softmax(logits)]

    def _answer(self, scores: NDArray[np.float32]) -> Answer:
        named = dict(zip(self.labels, map(float, scores), strict=True))
        return {"label": self.labels[int(scores.argmax())], "scores": named}


def _softmax(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    raised: NDArray[np.float32] = np.exp(logits - logits.max(axis=1, keepdims=True))
    scores: NDArray[np.float32] = raised / raised.sum(axis=1, keepdims=True)
    return scores


def bundle_path() -> Path:
    """The bundle to serve."""
    return Path(os.environ["PEER_BUNDLE"])


def port() -> int:
    """The port to listen on."""
    return int(os.environ["PEER_PORT"])


def settings() -> dict[str, Any]:
    """The settings that this server was given."""
    given: dict[str, Any] = json.loads(os.environ["PEER_SETTINGS"])
    return given
