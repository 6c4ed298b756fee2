"""A checkpoint or bundle on labelled documents: read both, predict, make the report."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from models.bundle import MANIFEST, load_bundle
from models.checkpoint import read_checkpoint
from models.description import TABLES, TOKENIZER, WEIGHTS, Description
from models.networks import build_network
from models.weights import load_weights
from training.baseline import make_baseline
from training.corpus import SPLITS, Corpus, read_corpus
from training.data_options import DataOptions
from training.errors import DataError
from training.evaluation import Ints, Subject, evaluate
from training.prediction import predictor_for
from training.storage import Array, Cache
from training.tokenizing import load_vocabulary, tokenize


@dataclass(frozen=True)
class Evaluated:
    """The report of one evaluation; it has a baseline only where the data has all splits."""

    name: str
    documents: int
    report: dict[str, Any]


def evaluate_folder(
    folder: Path, options: DataOptions, cache: Path | None, threads: int
) -> Evaluated:
    """Evaluate a checkpoint's or a bundle's weights with PyTorch."""
    torch.set_num_threads(max(1, threads))
    description, weights, tokenizer = _read(folder)
    model = build_network(description.config)
    load_weights(model, *weights)
    corpus = read_corpus(options, only_test=True)
    rows = corpus.rows("test")
    if not len(rows):
        raise DataError("the data has splits, but no test document to evaluate on")
    targets = _targets(corpus, description.labels)
    with tempfile.TemporaryDirectory() as scratch:
        kept = Cache(cache or Path(scratch))
        vocabulary = load_vocabulary(tokenizer, description.tokenizer)
        tokens = tokenize(corpus, vocabulary, kept)
        predict = predictor_for(model, tokens, vocabulary, description.max_tokens)
        subject = Subject(
            predict, rows, targets[rows], description.labels, Cache(Path(scratch)), seed=0
        )
        if all(len(corpus.rows(split)) for split in SPLITS):
            baseline = make_baseline(corpus, 0, kept)
            report = evaluate(subject, _reorder(baseline.scores, corpus, description.labels))
            report["baseline"] = baseline.record
        else:
            report = evaluate(subject)
    return Evaluated(description.name, len(rows), report)


def _read(folder: Path) -> tuple[Description, tuple[Path, ...], Path]:
    """What a folder describes, its files of weights, and its tokenizer."""
    if (folder / MANIFEST).is_file():
        bundle = load_bundle(folder)
        weights = (bundle.file(WEIGHTS), bundle.file(TABLES))
        return bundle.manifest, weights, bundle.file(TOKENIZER)
    return read_checkpoint(folder), (folder / WEIGHTS,), folder / TOKENIZER


def _targets(corpus: Corpus, labels: tuple[str, ...]) -> Ints:
    """Each document's label as the network counts them."""
    unknown = sorted(set(corpus.labels) - set(labels))
    if unknown:
        raise DataError(
            f"the data has labels that the network does not know: {', '.join(unknown[:10])}; "
            f"it knows: {', '.join(labels[:30])}"
        )
    index = np.array([labels.index(label) for label in corpus.labels])
    return np.asarray(index[corpus.targets])


def _reorder(scores: Array, corpus: Corpus, labels: tuple[str, ...]) -> Array:
    """The baseline's columns in the network's order; a label the data lacks gets nothing."""
    ordered = np.zeros((len(scores), len(labels)), np.float32)
    for column, label in enumerate(corpus.labels):
        ordered[:, labels.index(label)] = scores[:, column]
    return ordered
