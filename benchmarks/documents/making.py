"""The documents of a load: written to length, or the user's own.

Lengths are those that the service counts: `count` asks it (or any tokenizer) for the tokens of
texts. A document is never longer than was asked for, so that one of a model's full length stays
in one window.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from benchmarks.documents.lengths import AsTheyAre, Lengths
from benchmarks.documents.writing import Writer, join
from models.errors import ConfigError

#: Gives the number of tokens of each text.
Count = Callable[[Sequence[str]], Sequence[int]]

SUFFIXES = (".txt", ".md", ".text")
_TRIAL_WORDS = 400
_MOST_BYTES = 4 << 20
_MOST_FILES = 10_000
_CLOSE = 0.02  # a document may be this much shorter than was asked for
_ROUNDS = 4


@dataclass(frozen=True)
class Document:
    """A text and its length in tokens."""

    text: str
    tokens: int


def count_with(bundle: Path) -> Count:
    """Counts tokens with a bundle's tokenizer."""
    from models.bundle import load_bundle  # noqa: PLC0415 - load tests of a service need none

    tokenizer = load_bundle(bundle).tokenizer()

    def count(texts: Sequence[str]) -> list[int]:
        encodings = tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [len(encoding.ids) for encoding in encodings]

    return count


def make_documents(
    lengths: Lengths, number: int, count: Count, *, seed: int = 0, own: Sequence[str] = ()
) -> list[Document]:
    """Documents with lengths drawn from a distribution, of the user's texts or written."""
    if isinstance(lengths, AsTheyAre):
        if not own:
            raise ConfigError("--lengths documents needs --documents FOLDER")
        texts = list(own)
        return [Document(*pair) for pair in zip(texts, count(texts), strict=True)]
    source = random.Random(seed)  # noqa: S311
    wanted = [lengths.draw(source) for _ in range(number)]
    return write_to_length(wanted, count, seed=seed, own=own)


def write_to_length(
    wanted: Sequence[int], count: Count, *, seed: int = 0, own: Sequence[str] = ()
) -> list[Document]:
    """A document for each length: at most that many tokens, and nearly as many."""
    trial = list(islice(_words(seed, own), _TRIAL_WORDS))
    per_word = max(1, count([join(trial)])[0]) / len(trial)
    drafts = [
        list(islice(_words(seed + index, own), max(1, round(tokens / per_word * 1.03))))
        for index, tokens in enumerate(wanted)
    ]
    lengths = list(count([join(draft) for draft in drafts]))
    for _ in range(_ROUNDS):
        again = [i for i, tokens in enumerate(wanted) if not _fits(lengths[i], tokens, drafts[i])]
        if not again:
            break
        for i in again:
            drafts[i] = _resized(drafts[i], lengths[i], wanted[i], _words(seed + i, own))
        for i, tokens in zip(again, count([join(drafts[i]) for i in again]), strict=True):
            lengths[i] = tokens
    for i, tokens in enumerate(wanted):
        while lengths[i] > tokens and len(drafts[i]) > 1:  # a word is at least a token
            drafts[i] = drafts[i][: -(lengths[i] - tokens)] or drafts[i][:1]
            lengths[i] = count([join(drafts[i])])[0]
    return [Document(join(d), tokens) for d, tokens in zip(drafts, lengths, strict=True)]


def _fits(tokens: int, wanted: int, words: Sequence[str]) -> bool:
    return wanted * (1 - _CLOSE) - 1 <= tokens <= wanted or len(words) == 1 < tokens


def _resized(words: list[str], tokens: int, wanted: int, source: Iterator[str]) -> list[str]:
    """The same beginning with more or fewer words, so that the tokens come nearer."""
    if tokens > wanted:
        return words[: max(1, min(len(words) - 1, int(len(words) * wanted / tokens)))]
    more = int((wanted - tokens) * len(words) / max(1, tokens))
    return list(islice(source, len(words) + max(1, more)))


def _words(seed: int, own: Sequence[str]) -> Iterator[str]:
    """Words without end: written, or those of the user's texts from one of them on, in a circle."""
    if not own:
        yield from Writer(seed).words()
    start = random.Random(seed).randrange(len(own))  # noqa: S311
    while True:
        for text in (*own[start:], *own[:start]):
            yield from text.split()


def read_documents(path: Path) -> list[str]:
    """The user's texts: the text files of a folder, or the `text` of each line of a JSONL file."""
    if path.is_dir():
        files = sorted(p for p in path.rglob("*") if p.suffix in SUFFIXES and p.is_file())
        if not files:
            raise ConfigError(f"{path} holds no text files ({', '.join(SUFFIXES)})")
        texts = [_read(file) for file in files[:_MOST_FILES]]
    elif path.is_file():
        texts = _lines_of(path) if path.suffix in (".jsonl", ".ndjson") else [_read(path)]
    else:
        raise ConfigError(f"--documents: {path} does not exist")
    texts = [text for text in texts if text.strip()]
    if not texts:
        raise ConfigError(f"{path}: every document is empty")
    return texts


def _lines_of(path: Path) -> list[str]:
    texts = []
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(islice(file, _MOST_FILES), 1):
            if not line.strip():
                continue
            try:
                text = json.loads(line)["text"]
            except (ValueError, KeyError, TypeError):
                text = None
            if not isinstance(text, str):
                raise ConfigError(f'{path}, line {number}: give {{"text": "…"}} on each line')
            texts.append(text)
    return texts


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ConfigError(f"{path} is larger than {_MOST_BYTES >> 20} MiB")
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not text in UTF-8") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
