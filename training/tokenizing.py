"""The tokenizer of a run, and the corpus as token ids."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from models.progress import ProgressBar
from training.corpus import Corpus
from training.errors import TokenizerError
from training.storage import Array, Cache, digest_of

Kind = Literal["bpe", "words", "custom"]

UNKNOWN = "[UNK]"
_HEAD = 20_000  # characters of a document that the vocabulary is learnt from
_AT_ONCE = 64  # documents encoded at a time
_LARGEST_FILE = 64 << 20

# Same ids either way; threads of its own would take cores that were not given.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


@dataclass(frozen=True)
class Vocabulary:
    """A tokenizer, the kind it is, and its text as tokenizer.json holds it."""

    tokenizer: Tokenizer
    kind: Kind
    text: str

    @property
    def size(self) -> int:
        """Entries that the embedding needs."""
        return int(self.tokenizer.get_vocab_size())


@dataclass(frozen=True)
class Tokens:
    """All documents' ids, one after the other, mapped from disk."""

    ids: Array  # (tokens,)
    offsets: NDArray[np.int64]  # (documents + 1,)
    begins: Array | None = None  # (tokens,), whether a token begins a word; None: its id says so

    @property
    def lengths(self) -> NDArray[np.int64]:
        return np.diff(self.offsets)

    def length_of(self, index: int) -> int:
        return int(self.offsets[index + 1] - self.offsets[index])

    def document(self, index: int, start: int = 0, end: int | None = None) -> NDArray[np.int64]:
        """A document's tokens from `start` to `end`."""
        first, last = int(self.offsets[index]), int(self.offsets[index + 1])
        stop = last if end is None else min(last, first + end)
        return np.asarray(self.ids[first + start : stop], dtype=np.int64)


def make_vocabulary(corpus: Corpus, size: int, given: Path | None, cache: Cache) -> Vocabulary:
    """The user's tokenizer, or one learnt from the training documents."""
    if given is not None:
        return load_vocabulary(given, "custom")
    kind: Kind = "words" if corpus.words else "bpe"
    learn = _learn_words if corpus.words else _learn_bpe

    def make() -> dict[str, str]:
        heads = (corpus.texts[i] for i in corpus.rows("train"))
        return {"tokenizer": learn(heads, size).to_str()}

    text = cache.json("tokenizer", (corpus.digest, kind, size, _HEAD), make)["tokenizer"]
    return Vocabulary(Tokenizer.from_str(text), kind, text)


def learn_vocabulary(texts: list[str], size: int, cache: Cache) -> Vocabulary:
    """Byte-level pairs learnt from texts without labels."""
    digests = [hashlib.blake2b(text[:_HEAD].encode(), digest_size=16).hexdigest() for text in texts]

    def make() -> dict[str, str]:
        return {"tokenizer": _learn_bpe(texts, size).to_str()}

    text = cache.json("tokenizer", (digest_of(*digests), "bpe", size, _HEAD), make)["tokenizer"]
    return Vocabulary(Tokenizer.from_str(text), "bpe", text)


def load_vocabulary(path: Path, kind: Kind) -> Vocabulary:
    """Read a tokenizer.json; what is not one is a TokenizerError."""
    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise TokenizerError(f"{path} is too large for a tokenizer")
        text = path.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise TokenizerError(f"cannot read the tokenizer {path}: {error}") from None
    try:
        tokenizer = Tokenizer.from_str(text)
    except Exception as error:  # the library raises nothing narrower
        raise TokenizerError(
            f"{path} is not a tokenizer of the `tokenizers` library: {error}"
        ) from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    if tokenizer.get_vocab_size() == 0:
        raise TokenizerError(f"{path} has an empty vocabulary")
    return Vocabulary(tokenizer, kind, tokenizer.to_str())


def tokenize(corpus: Corpus, vocabulary: Vocabulary, cache: Cache) -> Tokens:
    """The corpus as ids, from the cache where it has been tokenized before."""
    key = (corpus.digest, digest_of(vocabulary.text))
    lengths: list[int] = []

    def make_ids() -> Array:
        short = np.uint16 if vocabulary.size <= 1 << 16 else np.uint32
        parts = []
        with ProgressBar("tokenizing", len(corpus.texts), "document") as bar:
            for ids in encode(vocabulary.tokenizer, corpus.texts):
                parts.append(np.array(ids, dtype=short))
                lengths.append(len(ids))
                bar.add(1)
        return np.concatenate(parts)

    def make_offsets() -> Array:
        if not lengths:  # the ids were there and this file was not
            lengths.extend(len(ids) for ids in encode(vocabulary.tokenizer, corpus.texts))
        return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)

    ids = cache.array("ids", key, make_ids)
    offsets = cache.array("offsets", key, make_offsets)
    begins = None
    if vocabulary.kind == "custom":
        begins = cache.array("begins", key, lambda: _word_starts(vocabulary.tokenizer, corpus))
    return Tokens(ids, np.asarray(offsets), begins)


def _word_starts(tokenizer: Tokenizer, corpus: Corpus) -> Array:
    """Which tokens begin a word, by the white space around them, as the service finds them."""
    parts = [np.zeros(0, np.bool_)]
    with ProgressBar("finding words", len(corpus.texts), "document") as bar:
        for text in corpus.texts:
            encoding = tokenizer.encode_batch([text], add_special_tokens=False)[0]
            begins = [
                begin == len(text) or text[begin].isspace() or text[max(0, begin - 1)].isspace()
                for begin, _ in encoding.offsets
            ]
            parts.append(np.array(begins, np.bool_))
            bar.add(1)
    return np.concatenate(parts)


def encode(tokenizer: Tokenizer, texts: Iterable[str]) -> Iterator[list[int]]:
    """The ids of each text, without special tokens, as the service makes them."""
    group: list[str] = []
    for text in texts:
        group.append(text)
        if len(group) == _AT_ONCE:
            yield from _encode_group(tokenizer, group)
            group = []
    if group:
        yield from _encode_group(tokenizer, group)


def _encode_group(tokenizer: Tokenizer, group: list[str]) -> Iterator[list[int]]:
    for encoding in tokenizer.encode_batch_fast(group, add_special_tokens=False):
        yield encoding.ids


def _learn_bpe(texts: Iterable[str], size: int) -> Tokenizer:
    """Byte-level pairs: no text is unknown. No special token that a text could spell."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((text[:_HEAD] for text in texts), trainer)
    return tokenizer


def _learn_words(texts: Iterable[str], size: int) -> Tokenizer:
    """One token per word, the most frequent ones; all others are unknown."""
    tokenizer = Tokenizer(models.WordLevel(unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.WordLevelTrainer(
        vocab_size=size, special_tokens=[UNKNOWN], show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer
