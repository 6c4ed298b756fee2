"""`longdoc evaluate`: the report of training for any checkpoint or bundle, on any labelled data."""

from __future__ import annotations

import argparse
from pathlib import Path

<<<<<<< HEAD
=======
import numpy as np
import torch

from models.bundle import MANIFEST, load_bundle
from models.checkpoint import read_checkpoint
from models.description import TOKENIZER, WEIGHTS, Description
from models.networks import build_network
from models.weights import load_weights
from training.baseline import make_baseline
from training.card import headline, report_tables
from training.corpus import SPLITS, Corpus, read_corpus
from training.errors import DataError
from training.evaluation import Ints, Subject, evaluate
from training.prediction import predictor_for
from training.storage import Array, Cache, save_json
from training.tokenizing import load_vocabulary, tokenize
>>>>>>> bf327ba (longdoc import: encoders of Hugging Face folders, equal to transformers and batch-invariant)
from training.train_command import add_data_options, data_options


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("model", type=Path, help="folder of a checkpoint or a bundle")
    parser.add_argument("--data", required=True, help="labelled documents, as for `longdoc train`")
    add_data_options(parser)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the whole report here")
    parser.add_argument(
        "--cache", type=Path, help="keep tokens and baseline for the next time (default: not kept)"
    )
    parser.add_argument("--threads", type=int, default=1, help="of PyTorch (default: 1)")


def run(args: argparse.Namespace) -> int:
    """Evaluate and print the report."""
<<<<<<< HEAD
    from training.card import headline, report_tables  # noqa: PLC0415 - --help needs no extra
    from training.evaluate_run import evaluate_folder  # noqa: PLC0415
    from training.storage import save_json  # noqa: PLC0415

    found = evaluate_folder(args.model, data_options(args), args.cache, args.threads)
    print(f"{found.name} on {found.documents} documents of {Path(args.data).name}\n")
    print(headline(found.report, found.name))
    print(f"Expected calibration error: {found.report['calibration_error']:.4f}\n")
    print(report_tables(found.report))
    if "baseline" not in found.report:
=======
    torch.set_num_threads(max(1, args.threads))
    description, folder = _describe(args.model)
    model = build_network(description.config)
    load_weights(model, folder / WEIGHTS)
    corpus = read_corpus(data_options(args), only_test=True)
    rows = corpus.rows("test")
    if not len(rows):
        raise DataError("the data has splits, but no test document to evaluate on")
    targets = _targets(corpus, description.labels)
    with tempfile.TemporaryDirectory() as scratch:
        cache = Cache(args.cache or Path(scratch))
        vocabulary = load_vocabulary(folder / TOKENIZER, description.tokenizer)
        tokens = tokenize(corpus, vocabulary, cache)
        predict = predictor_for(model, tokens, vocabulary, description.max_tokens)
        subject = Subject(
            predict, rows, targets[rows], description.labels, Cache(Path(scratch)), seed=0
        )
        if all(len(corpus.rows(split)) for split in SPLITS):
            baseline = make_baseline(corpus, 0, cache)
            report = evaluate(subject, _reorder(baseline.scores, corpus, description.labels))
            report["baseline"] = baseline.record
        else:
            report = evaluate(subject)
    print(f"{description.name} on {len(rows)} documents of {Path(args.data).name}\n")
    print(headline(report, description.name))
    print(f"Expected calibration error: {report['calibration_error']:.4f}\n")
    print(report_tables(report))
    if "baseline" not in report:
>>>>>>> bf327ba (longdoc import: encoders of Hugging Face folders, equal to transformers and batch-invariant)
        print("No baseline beside it: the data has no train and valid split to fit one on.")
    if args.json is not None:
        save_json(args.json, found.report)
    return 0
