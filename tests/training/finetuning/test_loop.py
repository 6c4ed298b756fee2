"""Gradients of documents in windows, batches in shapes that repeat, rates by layer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from models.encoders.config import EncoderConfig
from models.encoders.extend import extended_positions
from models.encoders.network import EncoderClassifier
from training.finetuning.batches import chunks, make_batches, padded, sizes_up_to
from training.finetuning.loop import Loop, depth_of, make_optimizer, merged
from training.finetuning.recipe import Recipe
from training.tokenizing import Tokens

CONFIG = EncoderConfig(
    family="bert", vocab_size=50, num_labels=3, attention="softmax", layers=2, width=16, hidden=32,
    heads=2, positions=34, prefix=(1,), suffix=(2,),
)  # fmt: skip
LENGTHS = (3, 30, 90, 17, 64, 8, 200, 25)


def make_loop(batch_tokens: int, tmp_path: Path) -> Loop:
    torch.manual_seed(0)
    model = EncoderClassifier(CONFIG)
    ids = np.random.default_rng(0).integers(3, 50, sum(LENGTHS))
    tokens = Tokens(ids, np.concatenate([[0], np.cumsum(LENGTHS)]))
    windows = [[(at, min(at + 32, n)) for at in range(0, n, 28)] for n in LENGTHS]
    return Loop(
        model,
        tokens,
        np.arange(len(LENGTHS)),
        np.arange(len(LENGTHS)) % 3,
        windows,
        sizes_up_to(32),
        Recipe(batch_tokens=batch_tokens),
        half=False,
        check=lambda _: {"loss": 0.0, "accuracy": 0.0},
        state=tmp_path / "state.safetensors",
        identity={},
        say=lambda _: None,
    )


def gradients(loop: Loop) -> tuple[float, dict[str, torch.Tensor]]:
    """Of all documents as one batch, without dropout."""
    loop.model.eval()
    rng = np.random.default_rng(0)
    (batch,) = make_batches(loop.windows, np.array([32]), 1 << 20, rng)
    batch = type(batch)(batch.documents, batch.windows, batch.size, loop.recipe.batch_tokens // 32)
    loss = loop.gradients(batch)
    found = {name: p.grad.clone() for name, p in loop.parameters.items() if p.grad is not None}
    return loss, found


@pytest.mark.parametrize("rows", [4, 8])
def test_documents_longer_than_a_batch_get_the_same_gradients(rows: int, tmp_path: Path) -> None:
    loss, whole = gradients(make_loop(1 << 20, tmp_path))
    again, in_parts = gradients(make_loop(32 * rows, tmp_path))
    assert again == pytest.approx(loss, rel=1e-6)
    assert whole.keys() == in_parts.keys()
    for name, expected in whole.items():
        scale = max(float(expected.abs().max()), 1e-4)
        assert float((expected - in_parts[name]).abs().max()) <= 1e-5 * scale, name


def test_every_document_is_in_one_batch_and_shapes_are_few(tmp_path: Path) -> None:
    loop = make_loop(128, tmp_path)
    batches = loop.batches_of_epoch(0)
    seen = np.concatenate([batch.documents for batch in batches])
    assert sorted(seen) == list(range(len(LENGTHS)))
    shapes = set()
    for batch in batches:
        for part in chunks(batch):
            ids, lengths = padded(batch, part, loop.tokens, loop.rows)
            assert len(part) <= len(ids) <= batch.rows
            assert int(lengths.max()) <= ids.shape[1] == batch.size
            shapes.add(tuple(ids.shape))
    assert len(shapes) <= 4 * len(loop.sizes)
    assert not np.array_equal(seen, np.concatenate([b.documents for b in loop.batches_of_epoch(1)]))


def test_windows_are_merged_by_their_tokens() -> None:
    logits = torch.tensor([[1.0, 0.0], [4.0, 3.0], [2.0, 2.0]])
    windows = np.array([[0, 0, 30], [0, 25, 35], [1, 0, 7]])
    expected = torch.tensor([[1.75, 0.75], [2.0, 2.0]])
    torch.testing.assert_close(merged(logits, windows, "mean"), expected)
    surest = torch.tensor([[1.0, 0.0], [2.0, 2.0]])
    logits[1, 1] = 4.0
    torch.testing.assert_close(merged(logits, windows, "strongest"), surest)


def test_lower_layers_learn_slower_and_vectors_do_not_decay() -> None:
    model = EncoderClassifier(CONFIG)
    optimizer = make_optimizer(model, Recipe(rate=1.0, layer_decay=0.5, weight_decay=0.1))
    rates = {
        id(parameter): (group["rate"], group["weight_decay"])
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    found = {name: rates[id(p)] for name, p in model.named_parameters()}
    assert found["head.weight"] == (1.0, 0.1)
    assert found["head.bias"] == (1.0, 0.0)
    assert found["blocks.1.feed.expand.weight"] == (1.0, 0.1)
    assert found["blocks.0.feed.expand.weight"] == (0.5, 0.1)
    assert found["embedding.weight"] == (0.25, 0.1)
    assert found["positions.weight"] == (0.25, 0.0)
    assert depth_of("norm.weight", 2) == 2


def test_positions_are_repeated_or_stretched_behind_the_first() -> None:
    table = torch.arange(5.0)[:, None].expand(5, 2)
    assert extended_positions(table, 3, 2, "repeat")[:, 0].tolist() == [0, 1, 2]
    assert extended_positions(table, 8, 2, "repeat")[:, 0].tolist() == [0, 1, 2, 3, 4, 1, 2, 3]
    stretched = extended_positions(table, 8, 2, "interpolate")[:, 0].tolist()
    assert stretched == pytest.approx([0, 1, 1.5, 2, 2.5, 3, 3.5, 4])
