"""The network starts as the best bag of tokens, and each document is kept from its own fit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
import torch

from models.classifier import Classifier
from models.config import ModelConfig
from tests.support.labelled import documents, write_jsonl
from training.bag import Bag, Tables, damped_shares, feature_scales, fold_numbers, make_bag
from training.batches import pad
from training.corpus import Corpus, read_corpus
from training.data_options import DataOptions
from training.embeddings import make_embeddings
from training.storage import Cache
from training.tokenizing import Tokens, make_vocabulary, tokenize

WIDTH = 16
CONFIG = ModelConfig(
    vocab_size=320,
    num_labels=3,
    attention="linear",
    width=WIDTH,
    damp_repeats=True,
    pairs=512,
    pair_width=3,
    opening=8,
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Corpus, Tokens, Bag]:
    folder: Path = tmp_path_factory.mktemp("bag")
    corpus = read_corpus(DataOptions(str(write_jsonl(folder / "data.jsonl", documents(120)))))
    cache = Cache(folder / "cache")
    vocabulary = make_vocabulary(corpus, 320, None, cache)
    tokens = tokenize(corpus, vocabulary, cache)
    train, valid = corpus.rows("train"), corpus.rows("valid")
    embeddings = make_embeddings(tokens, train, vocabulary.size, WIDTH, 0, cache, ("key",))
    bag = make_bag(tokens, train, valid, corpus.targets, embeddings, CONFIG, 0, cache, ("key",))
    return corpus, tokens, bag


def weights_of(bag: Bag, tables: Tables) -> np.ndarray:
    """What each feature adds to each label's logit: (features, labels)."""
    short = torch.cat([tables.pairs, tables.opening])
    wide = torch.nn.functional.pad(short, (0, WIDTH - CONFIG.pair_width))
    return (torch.cat([tables.single, wide]) @ bag.weight.T).numpy()


def test_the_network_starts_as_exactly_the_bag(made: tuple[Corpus, Tokens, Bag]) -> None:
    corpus, tokens, bag = made
    model = Classifier(CONFIG).eval()
    model.embedding.set_tables(*bag.whole)
    with torch.no_grad():
        model.head.weight.copy_(bag.weight)
        model.head.bias.copy_(bag.bias)
        rows = corpus.rows("test")
        found = model(*pad([tokens.document(int(row)) for row in rows])).numpy()
    shares = damped_shares(tokens, rows, CONFIG)
    expected = shares @ weights_of(bag, bag.whole) + bag.bias.numpy()
    assert np.allclose(found, expected, atol=1e-4)
    assert np.mean(found.argmax(axis=1) == corpus.targets[rows]) > 0.7
    torch.nn.init.normal_(model.get_parameter("blocks.0.contract.weight"))
    pieces = pad([tokens.document(int(row)) for row in rows])
    with torch.no_grad():
        assert np.allclose(model.without_blocks(*pieces), found, atol=1e-4)
        assert not np.allclose(model(*pieces), found, atol=1e-2)


def test_a_document_is_surer_of_itself_only_in_the_fit_that_saw_it(
    made: tuple[Corpus, Tokens, Bag],
) -> None:
    corpus, tokens, bag = made
    train = corpus.rows("train")
    shares = damped_shares(tokens, train, CONFIG)
    parts = [part.reshape(5, -1, part.shape[1]) for part in bag.folded]
    folded = [weights_of(bag, Tables(*(part[n] for part in parts))) for n in range(5)]
    whole = shares @ weights_of(bag, bag.whole)
    apart = np.concatenate([shares[i] @ folded[fold] for i, fold in enumerate(bag.folds)])
    assert np.allclose(apart + bag.bias.numpy(), bag.logits, atol=1e-4)
    margins = []
    for logits in (whole, apart):
        own = logits[np.arange(len(train)), corpus.targets[train]]
        margins.append(float(np.mean(own - logits.mean(axis=1))))
    assert margins[0] > margins[1] > 0


def test_folds_spread_every_class() -> None:
    targets = np.repeat([0, 1], [50, 10])
    folds = fold_numbers(targets, seed=0)
    for number in range(5):
        assert np.bincount(targets[folds == number]).tolist() == [10, 2]
    assert not fold_numbers(np.array([0, 0, 0, 1]), seed=0).any()


def test_damped_shares_are_those_of_the_classifier() -> None:
    tokens = Tokens(np.array([1, 1, 1, 2, 0], dtype=np.uint16), np.array([0, 5]))
    found = damped_shares(tokens, np.array([0]), CONFIG).toarray()[0]
    twice, thrice = 1 + np.log(2), 1 + np.log(3)
    assert np.allclose(found[:3], np.array([1, thrice, 1]) / (2 + thrice))
    pairs = found[CONFIG.vocab_size : CONFIG.vocab_size + CONFIG.pairs]
    assert np.allclose(np.sort(pairs)[-3:], np.array([1, 1, twice]) / (2 + twice))
    assert np.isclose(pairs.sum(), 1)


def test_shares_of_an_opening_are_those_of_its_tokens_alone() -> None:
    tokens = Tokens(np.array([1, 1, 1, 2, 0], dtype=np.uint16), np.array([0, 5]))
    config = replace(CONFIG, opening=2)
    found = damped_shares(tokens, np.array([0]), config).toarray()[0]
    assert np.allclose(found[CONFIG.vocab_size + CONFIG.pairs :][:3], [0, 1, 0])
    none = replace(CONFIG, opening=0)
    whole = damped_shares(tokens, np.array([0]), none).toarray()[0]
    assert np.array_equal(found[: len(whole)], whole)
    assert len(found) > len(whole)


def test_what_tells_labels_apart_may_be_used_more_freely() -> None:
    """Feature 0 stands in one label's documents only, 1 in both labels', 2 in all documents."""
    rows = [[0.5, 0, 0.5]] * 5 + [[0, 0.5, 0.5]] * 2 + [[0, 0, 1]] * 3
    targets = np.array([0] * 6 + [1] * 4)
    scale = feature_scales(scipy.sparse.csr_matrix(np.array(rows)), targets)
    assert scale[0] > scale[1] > scale[2] > 0
    lengths = np.linalg.norm(np.array(rows) * scale, axis=1)
    assert np.isclose(np.mean(lengths**2), 1)


def test_neighbours_get_like_embeddings(tmp_path: Path) -> None:
    """Tokens 0 and 1 stand between the same others; 2 does not."""
    rng = np.random.default_rng(0)
    stream = [token for _ in range(3000) for token in (4, int(rng.integers(0, 2)), 5, 6, 2, 7)]
    tokens = Tokens(np.array(stream, dtype=np.uint16), np.array([0, len(stream)]))
    found = make_embeddings(tokens, np.array([0]), 8, 4, 0, Cache(tmp_path), ("key",))
    unit = found / np.linalg.norm(found, axis=1, keepdims=True).clip(1e-9)
    assert unit[0] @ unit[1] > 0.9
    assert unit[0] @ unit[2] < 0.5
