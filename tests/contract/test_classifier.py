"""The classifier, with every attention: explanations, independence, weights on disk."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from models.classifier import CausalConvolution, Classifier
from models.config import ModelConfig
from models.errors import BundleError, ConfigError, ShapeError
from models.inputs import MAX_ROWS, PAIR_FACTOR, TokenVectors, pair_rows, repetition_weights
from models.mechanisms import ATTENTIONS
from models.weights import LARGE, load_weights, round_weights, save_weights

VOCAB, LABELS = 500, 4

PAIRED = ModelConfig(vocab_size=VOCAB, num_labels=2, attention="linear", pairs=1000, pair_width=3)


def shaken_classifier(
    attention: str, vocab_size: int = VOCAB, damp_repeats: bool = True
) -> Classifier:
    """One whose blocks do something, as after training."""
    torch.manual_seed(0)
    config = ModelConfig.from_preset(
        "lra",
        vocab_size=vocab_size,
        num_labels=LABELS,
        attention=attention,
        damp_repeats=damp_repeats,
        pairs=2000,
        pair_width=6,
        opening=24,
    )
    model = Classifier(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    return model


BLANK: dict[str, Any] = {"convolution": 3, "readout": "last", "position_gain": 0.2}


def blank_classifier(attention: str, **params: Any) -> Classifier:
    """One as training without a bag starts."""
    torch.manual_seed(0)
    config = ModelConfig.from_preset(
        "lra", vocab_size=VOCAB, num_labels=LABELS, attention=attention, attention_params=params,
        **BLANK,
    )  # fmt: skip
    model = Classifier(config).eval()
    model.start_blank()
    return model


def documents(*lengths: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(sum(lengths))
    ids = torch.randint(VOCAB, (len(lengths), max(lengths)), generator=generator)
    return ids, torch.tensor(lengths)


each_attention = pytest.mark.parametrize("attention", ATTENTIONS.names())


@each_attention
@torch.no_grad()
def test_contributions_sum_to_the_logit(attention: str) -> None:
    model = shaken_classifier(attention)
    ids, lengths = documents(900, 64, 1)
    logits, contributions = model.explain(ids, lengths)
    assert contributions.shape == (3, 900, LABELS)
    summed = contributions.sum(dim=1) + model.head.bias
    assert (summed - model(ids, lengths)).abs().max() <= 1e-4
    assert (logits - model(ids, lengths)).abs().max() <= 1e-4
    assert (contributions[1, 64:] == 0).all()


@each_attention
@torch.no_grad()
def test_a_logit_depends_on_its_document_alone(attention: str) -> None:
    model = shaken_classifier(attention)
    ids, lengths = documents(700, 93, 3, 0)
    ids[1, 93:] = 10**12  # not even a token
    ids[2, 3:] = -1
    together = model(ids, lengths)
    for row, length in enumerate(lengths):
        alone = model(ids[row : row + 1, : max(int(length), 1)], lengths[row : row + 1])
        assert (together[row] - alone[0]).abs().max() <= 1e-5


@each_attention
@torch.no_grad()
def test_a_chosen_token_is_read_alike_in_any_company(attention: str) -> None:
    model = blank_classifier(attention)
    ids, lengths = documents(300, 93, 1)
    together = model(ids, lengths)
    for row, length in enumerate(lengths):
        alone = model(ids[row : row + 1, : int(length)], lengths[row : row + 1])
        assert (together[row] - alone[0]).abs().max() <= 1e-5
    logits, contributions = model.explain(ids, lengths)
    assert torch.allclose(logits, together, atol=1e-5)
    assert contributions.flatten(2).any(dim=2).sum(dim=1).tolist() == [1, 1, 1]


@torch.no_grad()
def test_the_convolution_looks_back_and_no_further_than_it_says() -> None:
    mix = CausalConvolution(64, 3)
    x = torch.zeros(1, 6, 64)
    x[0, 2] = 1
    assert torch.equal(mix(x)[0, 2:5], mix.weight)
    assert not mix(x)[0, [0, 1, 5]].any()


@torch.no_grad()
def test_global_tokens_with_own_projections_change_what_is_seen() -> None:
    model = blank_classifier("longformer", own_projections=True, window=8)
    ids, lengths = documents(100, 40)
    before = model(ids, lengths)
    state = model.state_dict()
    for part in ("weight", "bias"):
        state[f"blocks.0.qkv_globals.{part}"].copy_(state[f"blocks.0.qkv.{part}"])
    assert not torch.allclose(before, model(ids, lengths))


@each_attention
def test_an_untrained_classifier_is_a_bag_of_tokens(attention: str) -> None:
    config = ModelConfig.from_preset("lra", vocab_size=VOCAB, num_labels=2, attention=attention)
    model = Classifier(config).eval()
    ids, lengths = documents(50)
    shuffled = ids[:, torch.randperm(50)]
    assert torch.allclose(model(ids, lengths), model(shuffled, lengths), atol=1e-6)


@each_attention
def test_every_weight_learns(attention: str) -> None:
    model = shaken_classifier(attention).train()
    model(*documents(600, 40)).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


@each_attention
def test_weights_come_back_as_they_were_stored(attention: str, tmp_path: Path) -> None:
    model = shaken_classifier(attention)
    assert model.embedding.weight.numel() >= LARGE, "nothing here is stored short"
    round_weights(model)
    save_weights(model, tmp_path / "weights.safetensors")
    assert [path.name for path in tmp_path.iterdir()] == ["weights.safetensors"]
    again = Classifier(model.config).eval()
    load_weights(again, tmp_path / "weights.safetensors")
    ids, lengths = documents(70)
    assert torch.equal(model(ids, lengths), again(ids, lengths))


@torch.no_grad()
def test_repetitions_count_less() -> None:
    ids = torch.tensor([[7, 7, 7, 9, 5, 5]])
    mask = torch.tensor([[True] * 4 + [False] * 2])
    weights = repetition_weights(ids, mask, VOCAB)[0]
    three = (1 + math.log(3)) / 3
    assert torch.allclose(weights, torch.tensor([three, three, three, 1, 0, 0]), atol=1e-6)


@torch.no_grad()
def test_a_pair_adds_to_its_second_token_and_order_matters() -> None:
    config = PAIRED
    embedding = TokenVectors(config)
    assert embedding.pairs is not None
    embedding.pairs.weight.normal_()
    ids = torch.tensor([[7, 9, 7, 0]])
    mask = torch.tensor([[True, True, True, False]])
    pairs = embedding.pooled(torch.zeros(1, 4, config.width), ids, mask)
    rows = [(7 * PAIR_FACTOR + 9) % 1000, (9 * PAIR_FACTOR + 7) % 1000]
    assert rows[0] != rows[1]
    each = 3 / 2  # two pairs weigh as much as the three tokens
    assert torch.allclose(pairs[0, 1:3, :3], each * embedding.pairs.weight[rows], atol=1e-6)
    assert not pairs[0, [0, 3]].any()
    assert not pairs[0, :, 3:].abs().gt(1e-6).any()


class _LargestWholeNumber(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the largest whole number that any operation makes."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if isinstance(made, torch.Tensor) and made.dtype == torch.int64 and made.numel():
            self.largest = max(self.largest, int(made.abs().max()))
        return made


@pytest.mark.parametrize("rows", [1, 2, 1000, 12_288, 29_127, 524_288, (1 << 20) + 3, MAX_ROWS])
@pytest.mark.parametrize("vocab", [2, 12_288, 250_002, MAX_ROWS])
def test_pairs_keep_their_rows_without_a_number_that_float32_rounds(rows: int, vocab: int) -> None:
    random = torch.Generator().manual_seed(rows + vocab)
    ids = torch.randint(0, vocab, (2, 500), generator=random)
    ids[0, :4] = torch.tensor([vocab - 1, vocab - 1, 0, vocab - 1])
    with _LargestWholeNumber() as seen:
        found = pair_rows(ids, rows, vocab)
    assert seen.largest <= 1 << 24
    for document, places in zip(ids.tolist(), found.tolist(), strict=True):
        pairs = zip([0, *document], document, strict=False)
        assert places == [(before * PAIR_FACTOR + id_) % rows for before, id_ in pairs]


def test_a_table_of_pairs_that_is_too_large_is_refused() -> None:
    for rows, vocab in ((MAX_ROWS + 1, 100), (100, MAX_ROWS + 1)):
        with pytest.raises(ConfigError, match=str(MAX_ROWS)):
            pair_rows(torch.zeros(1, 3, dtype=torch.int64), rows, vocab)


@pytest.mark.parametrize("damp_repeats", [True, False])
@torch.no_grad()
def test_a_token_of_the_opening_adds_its_second_vector(damp_repeats: bool) -> None:
    config = replace(PAIRED, damp_repeats=damp_repeats, opening=2)
    embedding = TokenVectors(config)
    assert embedding.opening is not None
    embedding.opening.weight.normal_()
    ids = torch.tensor([[7, 8, 9, 7, 0], [7, 0, 0, 0, 0]])
    mask = torch.arange(5) < torch.tensor([[4], [1]])
    found = embedding.pooled(torch.zeros(2, 5, config.width), ids, mask)[:, :, :3]
    vectors = embedding.opening.weight
    each = 4 / 2  # two tokens weigh as much as the document's four
    assert torch.allclose(found[0, :2], each * vectors[[7, 8]], atol=1e-6)
    assert torch.allclose(found[1, 0], vectors[7], atol=1e-6)  # all is opening
    assert not found[0, 2:].any()
    assert not found[1, 1:].any()


@torch.no_grad()
def test_documents_may_be_read_with_different_tables() -> None:
    config = replace(PAIRED, damp_repeats=True, opening=10)
    sizes = ((VOCAB, config.width), (1000, 3), (VOCAB, 3))
    tables = [[torch.randn(size) for size in sizes] for _ in range(2)]
    stacked = TokenVectors(config)
    stacked.set_tables(*(torch.cat(part) for part in zip(*tables, strict=True)))
    ids, lengths = documents(40, 25)
    mask = torch.arange(40) < lengths[:, None]
    ids = ids.masked_fill(~mask, 0)
    which = torch.tensor([1, 0])
    found = stacked.pooled(stacked(ids, which), ids, mask, which)
    for row, table in enumerate((1, 0)):
        alone = TokenVectors(config)
        alone.set_tables(*tables[table])
        assert torch.equal(found[row], alone.pooled(alone(ids), ids, mask)[row])


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    save_weights(shaken_classifier("linear"), path)
    with pytest.raises(BundleError, match=r"weights.safetensors: embedding.* is \(500, "):
        load_weights(shaken_classifier("linear", vocab_size=501), path)
    with pytest.raises(BundleError, match=r"does not fit this model: lacks \['blocks.0.attention"):
        load_weights(shaken_classifier("performer"), path)
    path.write_bytes(b"\x80\x04 not a tensor file")
    with pytest.raises(BundleError, match=r"cannot read weights from weights.safetensors"):
        load_weights(shaken_classifier("linear"), path)
    with pytest.raises(BundleError, match="cannot read weights from absent"):
        load_weights(shaken_classifier("linear"), tmp_path / "absent")


def test_inputs_that_do_not_fit_are_refused() -> None:
    model = shaken_classifier("linear")
    ids, lengths = documents(10, 4)
    refused = [
        (ids[0], lengths, r"ids must be \(batch, n\) of type torch.int64; got \(10,\)"),
        (ids.int(), lengths, "got .* of torch.int32"),
        (ids, lengths[:, None], r"lengths must be \(batch,\)"),
        (ids, lengths[:1], "got 2 documents and 1 lengths"),
        (ids, lengths + 1, "lengths must be from 0 to n=10; got 5 to 11"),
        (ids, lengths - 5, "got -1 to 5"),
        (ids[:, :0], lengths, "at least one token"),
    ]
    for wrong_ids, wrong_lengths, message in refused:
        with pytest.raises(ShapeError, match=message):
            model(wrong_ids, wrong_lengths)
