"""The tokenizer of a bundle: only parts whose time and memory grow with the text and no faster.

A tokenizer.json is a program: its replacements can double a text forty times over, and its
patterns can take longer than the universe has. So each part is looked up here before the library
that would run it sees the file.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any

from tokenizers import Tokenizer

from models.errors import BundleError, bundle_errors
from models.plain_json import parse_json

_MAX_PARTS = 16  # in a sequence
_MAX_ADDED, _MAX_ADDED_LENGTH = 10_000, 200
_MAX_WORD = 1_000  # characters of a word that WordPiece looks at, in quadratic time
_MAX_GROWTH = 8.0  # by replacements, all together
_MAX_CHARSMAP, _MAX_REPLACEMENT = 4 << 20, 64
_PROBE = "A probe: 1,024 naïve 한국어 larvæ (🧬)\n\tdon't ask\x00 " + "x" * 300

_ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
#: Patterns of published tokenizers; each takes time in proportion to the text.
PATTERNS = frozenset(
    {
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        _ENDINGS + r"|\p{N}{1,3}" + _REST,
        _ENDINGS + r"|\p{N}" + _REST,
        r"\s+",
        r" {2,}",
        r"\w+|[^\w\s]+",
        r"\d",
        r" ",
    }
)

_NORMALIZERS = frozenset(
    {"NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Strip", "BertNormalizer", "Nmt"}
)
_PRE_TOKENIZERS = frozenset(
    {
        "ByteLevel", "Whitespace", "WhitespaceSplit", "BertPreTokenizer", "Metaspace",
        "Punctuation", "Digits", "UnicodeScripts", "CharDelimiterSplit",
    }
)  # fmt: skip


def load_tokenizer(content: bytes, vocab_size: int, name: str) -> Tokenizer:
    """The tokenizer in a tokenizer.json whose ids all lie below `vocab_size`; `name` for errors."""
    with bundle_errors(f"{name} is not a tokenizer that can be read"):
        check_tokenizer(parse_json(content), vocab_size)
    with bundle_errors(f"{name} is not a tokenizer"):
        tokenizer = Tokenizer.from_buffer(content)
        tokenizer.no_truncation()
        tokenizer.no_padding()
        ids = tokenizer.encode(_PROBE, add_special_tokens=False).ids
    if ids and max(ids) >= vocab_size:
        raise BundleError(f"{name} gives ids of {vocab_size} and more, which the network lacks")
    return tokenizer


def check_tokenizer(about: Any, vocab_size: int) -> None:
    """Refuse, with a ValueError, what is no tokenizer or could take more than its text is worth."""
    if not isinstance(about, dict):
        raise ValueError("it is not an object")
    growth = 1.0
    for part in _parts(about.get("normalizer"), "normalizers"):
        growth *= _growth(part)
    if growth > _MAX_GROWTH:
        raise ValueError(f"its replacements can make a text {growth:.3g} times as long")
    for part in _parts(about.get("pre_tokenizer"), "pretokenizers"):
        _check_cutting(part)
    model = about["model"]
    check = _MODELS.get(model["type"])
    if check is None:
        raise ValueError(f"its model is {model['type']!r:.60}, not one of {', '.join(_MODELS)}")
    check(model, vocab_size)
    added = about.get("added_tokens") or []
    if len(added) > _MAX_ADDED:
        raise ValueError(f"it adds {len(added)} tokens; at most {_MAX_ADDED} are allowed")
    for token in added:
        _check_id(token["id"], vocab_size)
        if not 1 <= len(token["content"]) <= _MAX_ADDED_LENGTH:
            raise ValueError(f"an added token has {len(token['content'])} characters")


def _parts(given: Any, inner: str) -> list[Mapping[str, Any]]:
    """The parts of a pipeline one after the other; sequences do not stand in sequences."""
    if given is None:
        return []
    parts = given[inner] if given.get("type") == "Sequence" else [given]
    if len(parts) > _MAX_PARTS:
        raise ValueError(f"it has {len(parts)} {inner}; at most {_MAX_PARTS} are allowed")
    return list(parts)


def _growth(part: Mapping[str, Any]) -> float:
    """How many times as long a normalizer can make a text."""
    kind = part.get("type")
    if kind in _NORMALIZERS:
        return 1.0  # what Unicode's forms add is bounded once and for all
    if kind == "Prepend" and len(part["prepend"]) <= _MAX_PARTS:
        return 1.0
    if kind == "Precompiled":
        _check_charsmap(base64.b64decode(part["precompiled_charsmap"], validate=True))
        return 1.0
    if kind == "Replace":
        replaced = part["pattern"].get("String")
        if replaced:
            return max(1.0, len(part["content"].encode()) / len(replaced.encode()))
        if part["pattern"].get("Regex") in PATTERNS:
            return max(1.0, float(len(part["content"].encode())))
        raise ValueError("it replaces by a pattern of its own, which could take for ever")
    raise ValueError(f"its normalizer {kind!r:.60} is not one that is read here")


def _check_charsmap(content: bytes) -> None:
    """SentencePiece's table of replacements: a trie, then texts that end with a zero each."""
    trie = int.from_bytes(content[:4], "little")
    if len(content) > _MAX_CHARSMAP or trie % 4 or not 0 < trie <= len(content) - 4:
        raise ValueError(f"its table of {len(content)} bytes is no table of replacements")
    longest = max(map(len, content[4 + trie :].split(b"\0")))
    if longest > _MAX_REPLACEMENT:
        raise ValueError(f"its table replaces a character by {longest} bytes")


def _check_cutting(part: Mapping[str, Any]) -> None:
    kind = part.get("type")
    if kind == "Split":
        pattern = part["pattern"]
        if not pattern.get("String") and pattern.get("Regex") not in PATTERNS:
            raise ValueError("it splits by a pattern of its own, which could take for ever")
    elif kind not in _PRE_TOKENIZERS:
        raise ValueError(f"its pre-tokenizer {kind!r:.60} is not one that is read here")


def _check_id(number: Any, vocab_size: int) -> None:
    if type(number) is not int or not 0 <= number < vocab_size:
        raise ValueError(f"it has the id {number!r:.40}; the network knows 0 to {vocab_size - 1}")


def _check_vocabulary(model: Mapping[str, Any], vocab_size: int) -> None:
    vocabulary = model["vocab"]
    if not isinstance(vocabulary, dict):
        raise ValueError("its vocabulary is not an object")
    for number in (min(vocabulary.values(), default=0), max(vocabulary.values(), default=0)):
        _check_id(number, vocab_size)
    unknown = model.get("unk_token")
    if unknown is not None and unknown not in vocabulary:
        raise ValueError(
            f"its token for what is unknown, {unknown!r:.60}, is not in its vocabulary"
        )


def _check_bpe(model: Mapping[str, Any], vocab_size: int) -> None:
    _check_vocabulary(model, vocab_size)
    if model.get("dropout"):
        raise ValueError("it leaves merges out at random: answers would not repeat")


def _check_words(model: Mapping[str, Any], vocab_size: int) -> None:
    _check_vocabulary(model, vocab_size)
    if model.get("unk_token") is None:
        raise ValueError("it has no token for what is unknown")


def _check_pieces(model: Mapping[str, Any], vocab_size: int) -> None:
    _check_words(model, vocab_size)
    longest = model.get("max_input_chars_per_word", 100)
    if not 1 <= longest <= _MAX_WORD:
        raise ValueError(f"it looks at words of {longest} characters; at most {_MAX_WORD}")


def _check_unigram(model: Mapping[str, Any], vocab_size: int) -> None:
    _check_id(len(model["vocab"]) - 1, vocab_size)
    if type(model.get("unk_id")) is not int or not 0 <= model["unk_id"] < len(model["vocab"]):
        raise ValueError("it has no token for what is unknown")


_MODELS: Mapping[str, Callable[[Mapping[str, Any], int], None]] = {
    "BPE": _check_bpe,
    "WordLevel": _check_words,
    "WordPiece": _check_pieces,
    "Unigram": _check_unigram,
}
