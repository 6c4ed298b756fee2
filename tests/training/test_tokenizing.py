"""Tokenizers: learnt or given, with offsets into the original text, and ids made once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from service.text.tokenizer import Reader
from tests.support.labelled import documents, write_jsonl
from training.corpus import Corpus, read_corpus
from training.data_options import DataOptions
from training.errors import TokenizerError
from training.storage import Cache
from training.tokenizing import Vocabulary, load_vocabulary, make_vocabulary, tokenize

TEXT = "Über the  court,\n\tthe 裁判 said:\u00a0“no” 🍞."


def corpus_of(tmp_path: Path, *, words: bool = False) -> Corpus:
    rows = [{**r, "text": r["text"].split() if words else r["text"]} for r in documents(60)]
    return read_corpus(DataOptions(str(write_jsonl(tmp_path / "data.jsonl", rows))))


def learnt(tmp_path: Path, *, words: bool = False) -> tuple[Corpus, Vocabulary, Cache]:
    corpus, cache = corpus_of(tmp_path, words=words), Cache(tmp_path / "cache")
    return corpus, make_vocabulary(corpus, 400, None, cache), cache


def test_offsets_point_into_the_original_text(tmp_path: Path) -> None:
    _, vocabulary, _ = learnt(tmp_path)
    encoding = vocabulary.tokenizer.encode(TEXT, add_special_tokens=False)
    covered = [False] * len(TEXT)
    for start, end in encoding.offsets:
        covered[start:end] = [True] * (end - start)
    assert all(seen or c.isspace() for seen, c in zip(covered, TEXT, strict=True))
    assert vocabulary.tokenizer.decode(encoding.ids).strip() == TEXT


def test_ids_are_those_that_the_service_makes(tmp_path: Path) -> None:
    corpus, vocabulary, cache = learnt(tmp_path)
    tokens = tokenize(corpus, vocabulary, cache)
    reader = Reader(Tokenizer.from_str(vocabulary.text), limit=10_000, overlap=0)
    for index in (0, 7, 59):
        expected = reader.read(corpus.texts[index]).ids
        assert np.array_equal(tokens.document(index), expected)
        assert tokens.length_of(index) == len(expected)


def test_a_corpus_is_tokenized_once(tmp_path: Path) -> None:
    corpus, vocabulary, cache = learnt(tmp_path)
    first = tokenize(corpus, vocabulary, cache)
    written = {path: path.stat().st_mtime_ns for path in cache.folder.iterdir()}
    second = tokenize(corpus, make_vocabulary(corpus, 400, None, cache), cache)
    assert {path: path.stat().st_mtime_ns for path in cache.folder.iterdir()} == written
    assert np.array_equal(first.ids, second.ids)
    assert first.ids.dtype == np.uint16


def test_events_are_words_and_rare_ones_unknown(tmp_path: Path) -> None:
    _, vocabulary, _ = learnt(tmp_path, words=True)
    assert vocabulary.kind == "words"
    encoding = vocabulary.tokenizer.encode("court never-seen  ball")
    assert encoding.tokens == ["court", "[UNK]", "ball"]
    assert encoding.offsets == [(0, 5), (6, 16), (18, 22)]


def test_no_text_can_spell_a_special_token(tmp_path: Path) -> None:
    _, vocabulary, _ = learnt(tmp_path)
    assert vocabulary.tokenizer.get_added_tokens_decoder() == {}


def test_a_given_tokenizer_is_used_without_truncation(tmp_path: Path) -> None:
    corpus, vocabulary, cache = learnt(tmp_path)
    own = Tokenizer.from_str(vocabulary.text)
    own.enable_truncation(5)
    own.save(str(tmp_path / "own.json"))
    given = make_vocabulary(corpus, 400, tmp_path / "own.json", cache)
    assert given.kind == "custom"
    assert tokenize(corpus, given, cache).lengths.max() > 5


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"{}", "is not a tokenizer"), (b"\xff\xfe", "cannot read"), (b"", "is not a tokenizer")],
)
def test_what_is_no_tokenizer_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(TokenizerError, match=message):
        load_vocabulary(path, "custom")


def test_a_tokenizer_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match="cannot read the tokenizer"):
        load_vocabulary(tmp_path / "none.json", "custom")
