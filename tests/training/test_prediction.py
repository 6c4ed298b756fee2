"""Long documents are read in windows and combined exactly as the service does it."""

from __future__ import annotations

import string
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.pre_tokenizers import BertPreTokenizer

from models.classifier import Classifier
from models.config import ModelConfig
from models.probabilities import softmax
from models.windows import OVERLAP
from service.text.tokenizer import Reader
from tests.support.labelled import documents, write_jsonl
from training.corpus import read_corpus
from training.data_options import DataOptions
from training.prediction import Predictor, infer, predictor_for
from training.storage import Cache
from training.tokenizing import Vocabulary, load_vocabulary, make_vocabulary, tokenize

LIMIT = 64
#: Single letters, and the same inside a word: a word takes several tokens.
_PIECES = {
    piece: number
    for number, piece in enumerate(
        [*string.ascii_lowercase, *(f"##{letter}" for letter in string.ascii_lowercase)], start=1
    )
}


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


def test_a_tokenizer_of_another_kind_is_cut_where_the_service_cuts(
    reading: tuple[Predictor, Vocabulary, list[str]], tmp_path: Path
) -> None:
    _, _, texts = reading
    pieces = Tokenizer(WordPiece({"[UNK]": 0, **_PIECES}, unk_token="[UNK]"))  # noqa: S106
    pieces.pre_tokenizer = BertPreTokenizer()
    pieces.save(str(tmp_path / "tokenizer.json"))
    vocabulary = load_vocabulary(tmp_path / "tokenizer.json", "custom")
    corpus = read_corpus(DataOptions(str(write_jsonl(tmp_path / "data.jsonl", documents(30)))))
    assert corpus.texts == texts
    tokens = tokenize(corpus, vocabulary, Cache(tmp_path))
    model = Classifier(
        ModelConfig(vocab_size=vocabulary.size, num_labels=3, attention="linear", width=16)
    )
    predict = predictor_for(model, tokens, vocabulary, LIMIT, 7)
    reader = Reader(pieces, LIMIT, 7)
    found = [predict.windows_of(index) for index in range(len(texts))]
    assert found == [[(w.start, w.end) for w in reader.read(text).windows] for text in texts]
    assert max(map(len, found)) > 1


def test_the_surest_window_may_stand_for_a_document(
    reading: tuple[Predictor, Vocabulary, list[str]],
) -> None:
    predict, _, texts = reading
    rows = np.arange(len(texts))
    found = replace(predict, merge="strongest")(rows)
    several = 0
    for index in rows:
        ids = predict.tokens.document(int(index))
        windows = predict.windows(ids)
        parts = [
            infer(predict.model, torch.from_numpy(ids[None, a:b]), torch.tensor([b - a]))[0]
            for a, b in windows
        ]
        surest = max(parts, key=lambda logits: softmax(logits[None]).max())
        assert np.allclose(found[index], surest, atol=1e-5)
        several += len(windows) > 1
    assert several


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
