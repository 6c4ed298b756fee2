"""Bundles with random weights, exported the way trained ones are, to measure speed on."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers

from export.exporter import export
from models.bundle import Bundle, Precision
from models.checkpoint import Checkpoint, write_checkpoint
from models.classifier import Classifier
from models.config import ModelConfig
from models.weights import round_weights, save_weights


def export_random(
    config: ModelConfig, folder: Path, precision: Precision, max_tokens: int
) -> Bundle:
    """Write a bundle of this configuration with random weights."""
    torch.manual_seed(0)
    model = Classifier(config).eval()
    round_weights(model)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({symbol: i for i, symbol in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    checkpoint = Checkpoint(
        name=f"random-{config.attention}".replace("_", "-"),
        task="nothing: random weights, to measure speed and memory",
        labels=tuple(f"label {index}" for index in range(config.num_labels)),
        config=config,
        max_tokens=max_tokens,
        tokenizer="custom",
        training={"note": "random weights"},
        evaluation={},
    )
    with tempfile.TemporaryDirectory() as workspace:
        source = Path(workspace) / "checkpoint"
        write_checkpoint(
            source,
            checkpoint,
            write_weights=lambda file: save_weights(model, file),
            tokenizer=tokenizer.to_str(),
            card="# Random weights\n\nTo measure speed and memory; it classifies nothing.\n",
        )
        return export(
            source,
            folder,
            bundle_version="1",
            precisions=(precision,),
            report=lambda _line: None,
        )
