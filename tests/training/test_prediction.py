"""Long documents are read in windows and combined exactly as the service does it."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from models.classifier import Classifier
from models.config import ModelConfig
from service.text.tokenizer import Reader
from tests.support.labelled import documents, write_jsonl
from training.corpus import read_corpus
from training.data_options import DataOptions
from training.prediction import OVERLAP, Predictor, cut_windows, infer, predictor_for
from training.storage import Cache
from training.tokenizing import Vocabulary, make_vocabulary, tokenize

LIMIT = 64


@given(
    starts=st.lists(st.booleans(), min_size=33, max_size=400),
    limit=st.integers(8, 32),
    overlap=st.integers(0, 4),
)
def test_windows_cover_everything_within_the_limit(
    starts: list[bool], limit: int, overlap: int
) -> None:
    windows = cut_windows(np.array(starts), limit, overlap)
    assert windows[0][0] == 0
    assert windows[-1][1] == len(starts)
    for (start, end), (following, _) in itertools.pairwise(windows):
        assert start < following <= end
    assert all(0 < end - start <= limit for start, end in windows)


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
