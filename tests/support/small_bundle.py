"""Small checkpoints and bundles, made the way real ones are, for tests that need one.

A bundle takes some seconds, most of them in PyTorch's exporter: tests that only read one share
`shared_bundle()`.
"""

from __future__ import annotations

import atexit
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from export.exporter import export
from models.bundle import Bundle, Precision
from models.checkpoint import Checkpoint, write_checkpoint
from models.classifier import Classifier
from models.config import ModelConfig
from models.weights import round_weights, save_weights

LABELS = ("weather", "kitchen", "garden")
SENTENCES = (
    "Rain fell on the hills all night and the wind turned to the north.",
    "A warm front brought clouds, thunder and a little sun by the evening.",
    "Snow is expected above eight hundred metres, with frost in the valleys.",
    "Chop the onions, melt the butter, and stir until the pan smells sweet.",
    "Let the dough rest for an hour, then bake it until the crust is brown.",
    "Add salt, pepper and a spoon of vinegar, and serve the soup at once.",
    "Sow the beans in May and water them every morning until they climb.",
    "Prune the roses after the last frost and feed the soil with compost.",
    "Tomatoes want sun, string, and a gardener who picks off the side shoots.",
)


def small_checkpoint(folder: Path, attention: str = "linear", **params: Any) -> Path:
    """Write a checkpoint with random weights and a tokenizer of our sentences; return its path."""
    tokenizer = small_tokenizer()
    config = ModelConfig(
        vocab_size=tokenizer.get_vocab_size(),
        num_labels=len(LABELS),
        attention=attention,
        attention_params=params,
        layers=1,
        width=16,
        hidden=32,
        damp_repeats=True,
    )
    torch.manual_seed(0)
    model = Classifier(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # blocks start as the identity: wake them up
            parameter.add_(torch.randn_like(parameter) * 0.2)
    round_weights(model)
    checkpoint = Checkpoint(
        name=f"small-{attention}".replace("_", "-"),
        task="what a sentence is about",
        labels=LABELS,
        config=config,
        max_tokens=512,
        tokenizer="bpe",
        training={"note": "random weights"},
        evaluation={"accuracy": 0.25},
    )
    path = folder / checkpoint.name
    write_checkpoint(
        path,
        checkpoint,
        write_weights=lambda file: save_weights(model, file),
        tokenizer=tokenizer.to_str(),
        card="# A small classifier\n\nRandom weights, for tests.\n",
    )
    return path


def small_tokenizer() -> Tokenizer:
    """A byte-level BPE tokenizer that any text goes through."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(SENTENCES, trainer)
    return tokenizer


def small_bundle(
    folder: Path,
    attention: str = "linear",
    *,
    precisions: tuple[Precision, ...] = ("fp32",),
    **params: Any,
) -> Bundle:
    """Export a small checkpoint; the bundle is in `folder`, under its name."""
    checkpoint = small_checkpoint(folder / "checkpoints", attention, **params)
    return export(
        checkpoint,
        folder / checkpoint.name,
        bundle_version="1",
        precisions=precisions,
        report=lambda _line: None,
    )


@cache
def shared_bundle(attention: str = "linear", **params: Any) -> Bundle:
    """The same small bundle for every test of this process; not to be changed."""
    folder = tempfile.TemporaryDirectory(prefix="longdoc-bundle-")
    atexit.register(folder.cleanup)
    return small_bundle(Path(folder.name), attention, **params)
