"""From text to token ids: tokenizing, and windows of whole words for what is too long."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from models import windows
from models.windows import Overflow
from service.engines.base import Ids
from service.errors import EmptyText, TooManyTokens
from service.text.fast_bpe import FastEncoder, fast_encoder

Offsets = NDArray[np.int64]  # (n, 2): where a token begins and ends, in characters

# The workers are the parallelism: a tokenizer that starts threads of its own would take cores
# from them behind the scheduler's back.
os.environ["TOKENIZERS_PARALLELISM"] = "false"

_QUICK = 8192  # characters that are tokenized in half a millisecond
# Characters tokenized at a time. That bounds the tokenizer's memory, and the time for which it
# keeps every other thread from running while it makes a list of all tokens' offsets.
_PART = 32_768
_SPACE = re.compile(r"(?<=\S)\s(?=\S)")
_SURE = 1.1  # a guess of so many times the limit will be above it; offsets cost half as much again


@dataclass(frozen=True)
class Window:
    """Tokens `start` to `end` of a document."""

    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start


@dataclass(frozen=True)
class Reading:
    """A tokenized document: what of it is read, and in which windows."""

    ids: Ids  # (n,)
    ends: NDArray[np.int64] | None  # (n,): where each token ends in the text, when asked for
    windows: tuple[Window, ...]
    total: int

    @property
    def used(self) -> int:
        """Tokens that are read."""
        end: int = self.windows[-1].end
        return end

    @property
    def truncated(self) -> bool:
        """Whether the rest is left unread."""
        return self.used < self.total


class Reader:
    """Tokenizes for one model, and learns what that takes."""

    def __init__(
        self, tokenizer: Tokenizer, limit: int, overlap: int, merge: windows.Merge = "mean"
    ) -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self.tokenizer = tokenizer
        self._fast: FastEncoder | None = None
        #: Texts of at most so many characters are read in less time than it takes to hand them to
        #: another thread, as long as no offsets are wanted.
        self.quick = 0
        self.limit = limit
        self.overlap = min(overlap, limit // 2)
        self.merge = merge  # what stands for a document of several windows
        self._tokens_per_character = 0.3
        self._seconds_per_character = 1e-6

    def speed_up(self) -> None:
        """From now on take the quicker of two ways to the same ids, if there is one."""
        self._fast = fast_encoder(self.tokenizer)
        self.quick = 0 if self._fast is None else _QUICK

    def guess(self, text: str) -> int:
        """Tokens that the text will have, from what earlier texts had."""
        return max(1, round(len(text) * self._tokens_per_character))

    def guess_from_length(self, characters: int) -> int:
        """Tokens that a text of so many characters will have."""
        return max(1, round(characters * self._tokens_per_character))

    def seconds(self, text: str) -> float:
        """Seconds that tokenizing it will take."""
        return len(text) * self._seconds_per_character

    def window_count(self, tokens: int) -> int:
        """Windows that so many tokens are read in."""
        if tokens <= self.limit:
            return 1
        return windows.count_windows(tokens, self.limit, self.overlap)[0]

    def read(self, text: str, overflow: Overflow = "window", *, offsets: bool = False) -> Reading:
        """Tokenize a text and decide what of it is read."""
        if not text or text.isspace():
            raise EmptyText("the text is empty or only white space")
        started = time.thread_time()
        too_long = overflow == "window" and self.guess(text) > _SURE * self.limit
        ids, spans = self._tokenize(text, offsets=offsets or too_long)
        total = len(ids)
        if total == 0:
            raise EmptyText("the text has no token that the model knows")
        if total > self.limit:
            if overflow == "error":
                raise TooManyTokens(
                    f"the text has {total} tokens; the model reads {self.limit} in one piece: "
                    "ask for on_overflow 'window', 'head_tail' or 'truncate'"
                )
            if overflow == "window" and spans is None:
                ids, spans = self._tokenize(text, offsets=True)
            if overflow == "head_tail":
                head, tail = windows.head_and_tail(total, self.limit)
                ids = np.concatenate([ids[:head], ids[tail:]])
                spans = None if spans is None else np.concatenate([spans[:head], spans[tail:]])
        if total <= self.limit or overflow != "window" or spans is None:
            cut = [Window(0, min(total, self.limit))]
        else:
            cut = cut_windows(text, spans, self.limit, self.overlap)
        self._learn(text, total, time.thread_time() - started)
        return Reading(ids, spans[:, 1] if spans is not None else None, tuple(cut), total)

    def _tokenize(self, text: str, *, offsets: bool) -> tuple[Ids, Offsets | None]:
        ids: list[Ids] = []
        spans: list[Offsets] = []
        for start, part in _parts(text) if len(text) > 2 * _PART else ((0, text),):
            if offsets:
                # Not `encode`, which keeps every other thread from running meanwhile.
                encoding = self.tokenizer.encode_batch([part], add_special_tokens=False)[0]
                span = np.array(encoding.offsets, dtype=np.int64).reshape(-1, 2)  # (n, 2)
                spans.append(span + start)
                ids.append(np.array(encoding.ids, dtype=np.int64))  # (n,)
            else:
                ids.append(np.array(self._ids(part), dtype=np.int64))
        if len(ids) == 1:
            return ids[0], spans[0] if offsets else None
        return np.concatenate(ids), np.concatenate(spans) if offsets else None

    def _ids(self, text: str) -> list[int]:
        fast = self._fast
        if fast is not None:
            return fast.encode(" " + text if fast.adds_space and text[0] != " " else text)
        found: list[int] = self.tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids
        return found

    def _learn(self, text: str, tokens: int, seconds: float) -> None:
        if len(text) >= 200:  # shorter ones say more of their beginning and end
            rate, pace = tokens / len(text), seconds / len(text)
            self._tokens_per_character += 0.1 * (rate - self._tokens_per_character)
            self._seconds_per_character += 0.1 * (pace - self._seconds_per_character)


def cut_windows(text: str, spans: Offsets, limit: int, overlap: int) -> list[Window]:
    """Overlapping windows of about equal length, each beginning and ending with whole words."""

    def begins_word(index: int) -> bool:
        begin = int(spans[index, 0])
        around = text[max(0, begin - 1) : begin], text[begin : begin + 1]
        return not around[1] or any(character.isspace() for character in around)

    cut = windows.cut_windows(len(spans), begins_word, limit, overlap)
    return [Window(start, end) for start, end in cut]


def _parts(text: str) -> list[tuple[int, str]]:
    """The text in parts that end before white space if there is any, each with its start."""
    parts, start = [], 0
    while len(text) - start > 2 * _PART:
        space = _SPACE.search(text, start + _PART, start + 2 * _PART)
        end = space.start() if space else start + 2 * _PART
        parts.append((start, text[start:end]))
        start = end
    return [*parts, (start, text[start:])]
