"""Unlabelled text as pieces of token ids: those to learn from, and those held out."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from models.progress import ProgressBar
from training.errors import DataError
from training.readers import read_rows
from training.storage import Array, Cache, digest_of
from training.tokenizing import Vocabulary, encode

Ints = NDArray[np.int64]

_HELD_OUT = 50  # one document of so many is held out
_SHORTEST = 16  # tokens; shorter documents teach nothing


@dataclass(frozen=True)
class Texts:
    """Documents' ids, one after the other, and which of them are held out.

    digest   stands for the texts
    """

    ids: Array  # (tokens,)
    offsets: Ints  # (documents + 1,)
    held_out: NDArray[np.bool_]  # (documents,)
    digest: str

    def tokens(self, *, held_out: bool) -> int:
        """How many tokens the documents of one kind have."""
        return int(np.diff(self.offsets)[self.held_out == held_out].sum())

    def piece(self, rng: np.random.Generator, longest: int, *, held_out: bool) -> Ints:
        """At most so many neighbouring tokens; a document is drawn by its length."""
        documents = np.flatnonzero(self.held_out == held_out)
        lengths = np.diff(self.offsets)[documents]
        at = int(rng.integers(int(lengths.sum())))
        place = int(np.searchsorted(np.cumsum(lengths), at, side="right"))
        first, length = int(self.offsets[documents[place]]), int(lengths[place])
        start = int(rng.integers(max(0, length - longest) + 1))
        return np.asarray(self.ids[first + start : first + min(length, start + longest)], np.int64)


def read_lines(source: str, column: str) -> list[str]:
    """The texts of a source as `longdoc train` reads them, or a plain text file's paragraphs."""
    path = Path(source)
    if path.suffix == ".txt" and path.is_file():
        try:
            whole = path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise DataError(f"{source} is not UTF-8 text: {error}") from None
        return [part for part in whole.split("\n\n") if part.strip()]
    texts = []
    for where, values in read_rows(source):
        value = values.get(column)
        if value is None and column not in values:
            known = ", ".join(str(name) for name in values)
            raise DataError(
                f"{where} has no column {column!r}; it has: {known}. Name it with --text"
            )
        if isinstance(value, list):
            value = " ".join(map(str, value))
        if not isinstance(value, str):
            raise DataError(f"{where}: the text is of type {type(value).__name__}, not a string")
        if value.strip():
            texts.append(value)
    return texts


def prepare_texts(texts: list[str], vocabulary: Vocabulary, cache: Cache) -> Texts:
    """Tokenize, and hold out about one document of fifty: always the same ones."""
    digests = [hashlib.blake2b(text.encode(), digest_size=16).digest() for text in texts]
    digest = hashlib.sha256(b"".join(digests)).hexdigest()
    key = (digest, digest_of(vocabulary.text), _SHORTEST)
    lengths: list[int] = []

    def make_ids() -> Array:
        parts = [np.zeros(0, np.int32)]
        lengths.clear()
        with ProgressBar("tokenizing", len(texts), "document") as bar:
            for ids in encode(vocabulary.tokenizer, texts):
                kept = ids if len(ids) >= _SHORTEST else []
                parts.append(np.array(kept, np.int32))
                lengths.append(len(kept))
                bar.add(1)
        return np.concatenate(parts)

    def make_offsets() -> Array:
        if not lengths:
            make_ids()
        return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)

    ids = cache.array("text-ids", key, make_ids)
    offsets = np.asarray(cache.array("text-offsets", key, make_offsets))
    held_out = np.array([item[0] % _HELD_OUT == 0 for item in digests], np.bool_)
    sizes = np.diff(offsets)
    if not (held_out & (sizes > 0)).any() and np.count_nonzero(sizes) > 1:
        held_out[np.flatnonzero(sizes)[-1]] = True
    found = Texts(ids, offsets, held_out, digest)
    if not found.tokens(held_out=False) or not found.tokens(held_out=True):
        raise DataError(
            f"there must be two documents of at least {_SHORTEST} tokens, one of them to hold out"
        )
    return found
