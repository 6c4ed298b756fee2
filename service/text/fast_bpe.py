"""Byte-level BPE by tiktoken: the ids that `tokenizers` gives, in about a quarter of the time.

Both cut a text into words by the same pattern and merge a word's bytes by the same ranks.
`tokenizers` looks up pairs, tiktoken what a pair makes; that is the same whenever a vocabulary was
learnt by merging, for then each entry is what its own bytes merge to. A tokenizer of any other
kind is left to `tokenizers`, and so is one whose ids differ on a trial text.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import tiktoken
from tokenizers import Tokenizer


@dataclass(frozen=True)
class FastEncoder:
    """Gives a text's ids; `adds_space` where the tokenizer puts a space before every text."""

    encode: Callable[[str], list[int]]
    adds_space: bool


# How byte-level BPE cuts a text: English endings, letters, digits, anything else, each with a
# space before it; white space, of which the last leaves a space to the word that follows.
_WORDS = r"'(?:[stmd]|re|ve|ll)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s+(?!\S)|\s+"
_TRIAL = "  We've read 1,024 of them;\n\n\tthe naïve 한국어 larvæ (🧬) weren't FED…   don't ask "
_PLAIN_BPE = {
    "type": "BPE",
    "dropout": None,
    "unk_token": None,
    "continuing_subword_prefix": None,
    "end_of_word_suffix": None,
    "fuse_unk": False,
    "byte_fallback": False,
    "ignore_merges": False,
}


def fast_encoder(tokenizer: Tokenizer) -> FastEncoder | None:
    """What gives a text's ids as the tokenizer does without special tokens, or None."""
    about = json.loads(tokenizer.to_str())
    cutting, model = about["pre_tokenizer"] or {}, about["model"]
    plain = not about["normalizer"] and not about["added_tokens"]
    if not plain or cutting.get("type") != "ByteLevel" or not cutting.get("use_regex"):
        return None
    if not _PLAIN_BPE.items() <= model.items() or not _is_learnt(model):
        return None
    byte_of = _bytes_by_letter()
    ranks = {
        bytes(byte_of[letter] for letter in token): id_ for token, id_ in model["vocab"].items()
    }
    encoding = tiktoken.Encoding("bundle", pat_str=_WORDS, mergeable_ranks=ranks, special_tokens={})

    adds_space = bool(cutting["add_prefix_space"])
    trial = " " + _TRIAL if adds_space and not _TRIAL.startswith(" ") else _TRIAL
    if encoding.encode_ordinary(trial) != _ids(tokenizer, _TRIAL):
        return None
    return FastEncoder(encoding.encode_ordinary, adds_space)


def _is_learnt(model: Mapping[str, Any]) -> bool:
    """Whether the vocabulary is the 256 bytes, then what each merge made, in that order."""
    vocabulary: dict[str, int] = model["vocab"]
    made = [vocabulary.get(left + right, -1) for left, right in model["merges"]]
    in_order = made == list(range(256, 256 + len(made)))
    letters = _bytes_by_letter().keys() <= vocabulary.keys()
    return in_order and letters and len(vocabulary) == 256 + len(made)


def _bytes_by_letter() -> dict[str, int]:
    """The printable letter that byte-level BPE writes for each byte.

    Bytes that are printable in Latin-1 stand for themselves, the others for letters from 256 on.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = itertools.count(256)
    return {chr(byte if byte in printable else next(others)): byte for byte in range(256)}


def _ids(tokenizer: Tokenizer, text: str) -> list[int]:
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    return ids
