"""Long documents are read in windows and combined exactly as the service does it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from models.classifier import Classifier
from models.config import ModelConfig
from models.windows import OVERLAP
from service.text.tokenizer import Reader
from tests.support.labelled import documents, write_jsonl
from training.corpus import read_corpus
from training.data_options import DataOptions
from training.prediction import Predictor, infer, predictor_for
from training.storage import Cache
from training.tokenizing import Vocabulary, make_vocabulary, tokenize

LIMIT = 64


@pytest.fixture(scope="module")
def reading(tmp_path_factory: pytest.TempPathFactory) -> tuple[Predictor, Vocabulary, list[str]]:
    folder: Path = tmp_path_factory.mktemp("prediction")
    corpus = read_corpus(DataOptions(str(write_jsonl(folder / "data.jsonl", documents(30)))))
    cache = Cache(folder / "cache")
    vocabulary = make_vocabulary(corpus, 300, None, cache)
    torch.manual_seed(0)
    model = Classifier(
        ModelConfig(vocab_size=vocabulary.size, num_labels=3, attention="linear", width=16)
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    tokens = tokenize(corpus, vocabulary, cache)
    return predictor_for(model, tokens, vocabulary, LIMIT), vocabulary, corpus.texts


def test_windows_are_those_of_the_service(
    reading: tuple[Predictor, Vocabulary, list[str]],
) -> None:
    predict, vocabulary, texts = reading
    reader = Reader(Tokenizer.from_str(vocabulary.text), LIMIT, OVERLAP)
    long = 0
    for index, text in enumerate(texts):
        windows = predict.windows(predict.tokens.document(index))
        assert windows == [(w.start, w.end) for w in reader.read(text).windows]
        long += len(windows) > 1
    assert long > 10


def test_a_document_is_the_mean_of_its_windows_by_their_tokens(
    reading: tuple[Predictor, Vocabulary, list[str]],
) -> None:
    predict, _, texts = reading
    rows = np.arange(len(texts))
    found = predict(rows)
    for index in rows:
        ids = predict.tokens.document(int(index))
        windows = predict.windows(ids)
        parts = [
            infer(predict.model, torch.from_numpy(ids[None, a:b]), torch.tensor([b - a]))[0]
            for a, b in windows
        ]
        expected = np.average(parts, axis=0, weights=[b - a for a, b in windows])
        assert np.allclose(found[index], expected, atol=1e-5)


def test_reading_the_first_tokens_only(
    reading: tuple[Predictor, Vocabulary, list[str]],
) -> None:
    predict, _, texts = reading
    rows = np.arange(len(texts))
    found = predict(rows, read=10)
    ids = torch.from_numpy(predict.tokens.document(4)[None, :10])
    assert np.allclose(found[4], infer(predict.model, ids, torch.tensor([10]))[0], atol=1e-5)
