"""Texts of chosen lengths, made of words that the tokenizer knows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

SHORTEST, LONGEST = 32, 16_384
_MEDIAN, _SIGMA = 512, 1.2  # of the log-normal lengths: a mean of about 1,000 tokens

_TEXT = (
    "the of and in to a that with for was were by as is on at from are this we cells gene protein "
    "data model activity each two between expression response analysis time these which neurons "
    "mice brain growth structure binding signal population effect temperature species membrane"
)
_WORDS = _TEXT.split()


@dataclass(frozen=True)
class Document:
    """A text, its length in tokens, and the request that sends it."""

    text: str
    tokens: int

    def request(self, path: str = "/classify") -> bytes:
        """A whole HTTP request."""
        body = json.dumps({"input": self.text}).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


def log_normal_lengths(count: int, seed: int, longest: int = LONGEST) -> list[int]:
    """Lengths as documents have them: many short ones, few long ones."""
    drawn = np.random.default_rng(seed).lognormal(np.log(_MEDIAN), _SIGMA, count)
    clipped: NDArray[np.int64] = np.clip(drawn, SHORTEST, longest).astype(np.int64)
    return [int(length) for length in clipped]


def make_documents(tokenizer: Tokenizer, lengths: Sequence[int], seed: int) -> list[Document]:
    """A document of about each length; the tokens noted are those it has."""
    random = np.random.default_rng(seed)
    sample = " ".join(random.choice(_WORDS, 2000))
    per_word = len(tokenizer.encode(sample, add_special_tokens=False).ids) / 2000
    documents = []
    for length in lengths:
        words = random.choice(_WORDS, max(1, int(length / per_word * 1.02) + 2))
        encoding = tokenizer.encode(" ".join(words), add_special_tokens=False)
        end = encoding.offsets[min(length, len(encoding.ids)) - 1][1]
        text = " ".join(words)[:end]
        documents.append(Document(text, min(length, len(encoding.ids))))
    return documents
