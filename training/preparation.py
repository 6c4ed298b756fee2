"""The stages before the network, each cached by the digest of what it is made from.

Runs on the same data share them: nine attentions tokenize once, and start from one bag.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from models.classifier import Classifier
from models.config import ModelConfig
from training.bag import Bag, make_bag
from training.baseline import Baseline, make_baseline
from training.corpus import SPLITS, Corpus, read_corpus
from training.embeddings import make_embeddings
from training.errors import DataError
from training.log import Log
from training.plan import Plan
from training.storage import Array, Cache, digest_of
from training.tokenizing import Tokens, Vocabulary, make_vocabulary, tokenize


@dataclass(frozen=True)
class Data:
    """Documents, their tokens, and what a linear classifier makes of them."""

    corpus: Corpus
    vocabulary: Vocabulary
    tokens: Tokens
    baseline: Baseline


@dataclass(frozen=True)
class Prepared(Data):
    """What the attentions share: the data, and the bag that training starts from, if any."""

    config: ModelConfig
    aims: Array
    bag: Bag | None


def read_data(corpus: Corpus, vocabulary: Vocabulary, seed: int, cache: Cache, say: Log) -> Data:
    """Tokens and baseline of a corpus, for a tokenizer that there is already."""
    describe(corpus, say)
    tokens = tokenize(corpus, vocabulary, cache)
    say(f"{vocabulary.size} tokens in the vocabulary, {int(tokens.lengths.sum()):,} in the data")
    baseline = make_baseline(corpus, seed, cache)
    say(f"baseline on test: accuracy {baseline.record['accuracy']:.4f}")
    return Data(corpus, vocabulary, tokens, baseline)


def describe(corpus: Corpus, say: Log) -> None:
    counts = ", ".join(f"{len(corpus.rows(s))} {s}" for s in SPLITS)
    say(f"{len(corpus.labels)} labels; documents: {counts}")
    for note in corpus.notes:
        say(f"WARNING: {note}")


def prepare(plan: Plan, say: Log) -> Prepared:
    """The stages before the network: each is cached by the digest of what it is made from."""
    recipe, cache = plan.recipe, Cache(plan.cache)
    corpus = read_corpus(plan.data)
    describe(corpus, say)
    vocabulary = make_vocabulary(corpus, recipe.vocabulary, plan.tokenizer, cache)
    labels = len(corpus.labels)
    directions = min(1 if labels == 2 else labels, plan.network["width"])  # that tell labels apart
    config = ModelConfig(
        vocab_size=vocabulary.size,
        num_labels=labels,
        pairs=0 if plan.blank else recipe.pair_entries // directions,
        pair_width=0 if plan.blank else directions if recipe.pair_entries else 0,
        **plan.network,
    )
    Classifier(config)  # a wrong parameter is found before anything takes time
    tokens = tokenize(corpus, vocabulary, cache)
    lengths = tokens.lengths
    if int(lengths.max()) == 0:
        raise DataError("the tokenizer finds no token in any document")
    say(f"{vocabulary.size} tokens in the vocabulary, {int(lengths.sum()):,} in the documents")
    baseline = make_baseline(corpus, recipe.seed, cache)
    say(f"baseline on test: accuracy {baseline.record['accuracy']:.4f}")
    if plan.blank:
        aims = _aims(corpus, baseline, distillation=0)
        return Prepared(corpus, vocabulary, tokens, baseline, config, aims, bag=None)
    key = (corpus.digest, digest_of(vocabulary.text))
    train_rows = corpus.rows("train")
    embeddings = make_embeddings(
        tokens, train_rows, vocabulary.size, config.width, recipe.seed, cache, key
    )
    aims = _aims(corpus, baseline, recipe.distillation)
    bag = make_bag(
        tokens,
        train_rows,
        corpus.rows("valid"),
        corpus.targets,
        embeddings,
        config,
        recipe.seed,
        cache,
        key,
    )
    say("bag of tokens is trained")
    return Prepared(corpus, vocabulary, tokens, baseline, config, aims, bag)


def _aims(corpus: Corpus, baseline: Baseline, distillation: float) -> Array:
    """What the network is to say of each training document: its label, and the teacher's view."""
    rows = corpus.rows("train")
    labels = np.eye(len(corpus.labels), dtype=np.float32)[corpus.targets[rows]]
    if baseline.teacher is None:
        return labels
    return np.asarray((1 - distillation) * labels + distillation * baseline.teacher, np.float32)
