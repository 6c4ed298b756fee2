"""What is imported computes what `transformers` computes, for one document alone and unpadded."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from models.encoders.network import EncoderClassifier
from tests.support.references import REFERENCES, reference_states
from training.importing.folder import opened
from training.importing.network import build

BOUND = 1e-5  # of the scale of what is compared
_FEW = {"nystromformer-landmarks": (512,), "big_bird": (63, 177)}


def load(folder: Path, *, without_head: bool = False) -> EncoderClassifier:
    with opened(folder, without_head=without_head) as (found, weights):
        return build(found, weights)


def check(name: str, folder: Path, lengths: tuple[int, ...]) -> None:
    reference = REFERENCES[name].save(folder)
    ours = load(folder)
    for n in lengths:
        ids = torch.randint(5, 95, (1, n), generator=torch.Generator().manual_seed(n))
        fresh = type(reference)(reference.config).eval()  # BigBird remembers earlier lengths
        fresh.load_state_dict(reference.state_dict())
        theirs, their_logits = reference_states(fresh, ids)
        length = torch.tensor([n])
        with torch.no_grad():
            states = ours.all_states(ids, length)
            logits = ours.logits_of(states[-1], length)
        assert len(states) == len(theirs) == ours.config.layers + 1
        for layer, (mine, other) in enumerate(zip(states, theirs, strict=True)):
            assert relative(mine, other) <= BOUND, f"{name}, {n} tokens, layer {layer}"
        assert relative(logits, their_logits) <= BOUND, f"{name}, {n} tokens, logits"


def relative(ours: Tensor, theirs: Tensor) -> float:
    assert ours.shape == theirs.shape
    return float((ours - theirs).abs().max() / theirs.abs().max())


@pytest.mark.parametrize("name", REFERENCES)
def test_short_documents_get_the_reference_s_states_and_logits(name: str, tmp_path: Path) -> None:
    check(name, tmp_path, _FEW.get(name, (1, 65)))


@pytest.mark.slow
@pytest.mark.parametrize("name", REFERENCES)
def test_every_edge_gets_the_reference_s_states_and_logits(name: str, tmp_path: Path) -> None:
    check(name, tmp_path, REFERENCES[name].lengths)


@pytest.mark.parametrize("name", REFERENCES)
def test_an_encoder_without_a_head_keeps_its_states(name: str, tmp_path: Path) -> None:
    n = 512 if "landmarks" in name else 65
    reference = REFERENCES[name].save(tmp_path, head=False)
    ours = load(tmp_path)
    assert ours.config.num_labels == 0
    ids = torch.randint(5, 95, (1, n), generator=torch.Generator().manual_seed(n))
    seen = {"global_attention_mask": (torch.arange(n) == 0).long()[None]}
    with torch.no_grad():
        theirs = reference(ids, **(seen if name == "longformer" else {})).last_hidden_state
        mine = ours.states(ids, torch.tensor([n]))
    assert relative(mine, theirs) <= BOUND


@pytest.mark.parametrize("name", REFERENCES)
def test_a_document_s_logits_do_not_depend_on_its_batch(name: str, tmp_path: Path) -> None:
    REFERENCES[name].save(tmp_path)
    ours = load(tmp_path)
    lengths = torch.tensor([1, 300, 17, 64, 195])
    ids = torch.randint(5, 95, (5, 331), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        together = ours(ids, lengths)
        other_padding = ours(ids.flip(0).where(_padding(ids, lengths), ids), lengths)
        alone = [ours(ids[i : i + 1, :n], torch.tensor([n])) for i, n in enumerate(lengths)]
    assert relative(together, torch.cat(alone)) <= BOUND
    assert torch.equal(together, other_padding)


def _padding(ids: Tensor, lengths: Tensor) -> Tensor:
    return torch.arange(ids.shape[1]) >= lengths[:, None]


def test_special_tokens_stand_around_every_document(tmp_path: Path) -> None:
    reference = REFERENCES["bert"].save(tmp_path)
    ours = load(tmp_path)
    words = torch.randint(5, 95, (1, 40), generator=torch.Generator().manual_seed(2))
    whole = torch.cat([torch.tensor([[2]]), words, torch.tensor([[3]])], dim=1)
    with torch.no_grad():
        assert relative(ours(words, torch.tensor([40])), reference(whole).logits) <= BOUND


def test_contributions_of_a_mean_pooled_linear_head_sum_to_its_logits(tmp_path: Path) -> None:
    REFERENCES["bert"].save(tmp_path, head=False)
    with opened(tmp_path) as (found, weights):
        encoder = build(found, weights)
    config = type(found.config).from_dict({**found.config.to_dict(), "num_labels": 3})
    torch.manual_seed(0)
    model = EncoderClassifier(config).eval()
    model.load_state_dict(encoder.state_dict(), strict=False)
    ids, lengths = torch.randint(5, 95, (3, 70)), torch.tensor([70, 1, 33])
    with torch.no_grad():
        logits, shares = model.explain(ids, lengths)
        assert relative(logits, model(ids, lengths)) <= BOUND
    assert not shares[1, 1:].any()
    assert not shares[2, 33:].any()
