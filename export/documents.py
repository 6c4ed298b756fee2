"""Texts to measure a graph on: the user's held-out documents, or sentences of our own."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from models.errors import ConfigError
from models.files import sha256_of
from service.engines.base import Ids

#: Documents that labels are compared on.
COUNT = 400
_MAX_FILE_BYTES = 1 << 30

_SENTENCES = (
    "The committee met twice in the spring and once more after the harvest.",
    "Cells were grown for three days at body temperature before they were counted.",
    "I laughed at the first scene, yawned at the second, and left before the third.",
    "Neither party may assign this agreement without the written consent of the other.",
    "A quiet film, beautifully shot, that trusts its actors to say little and mean much.",
    "The mutant strain divided more slowly, and its membranes leaked under stress.",
    "Payment is due within thirty days of the date on which the invoice was received.",
    "What a waste of a good cast: the jokes are old and the ending is older.",
    "Neurons in the outer layer fired whenever the animal turned towards the light.",
    "The river rose by two metres overnight, and the lower road was closed at dawn.",
    "We sampled soil from forty fields and sequenced whatever would grow from it.",
    "Her second novel is shorter, sharper, and far more forgiving than the first.",
    "The tenant shall keep the premises in good repair and insured against fire.",
    "Simulations with a single parameter explained most of the variance we observed.",
    "By the final whistle only the goalkeeper looked as if he wanted to play on.",
    "It is the kind of thriller in which everybody whispers and nobody listens.",
    "Antibodies bound to the tip of the protein and kept it from entering the cell.",
    "The court found that the notice had been served in time and at the right address.",
    "Trains ran late all week because of works on the bridge over the canal.",
    "Two of the patients recovered without treatment; the third was given both drugs.",
    "The soundtrack does the acting here, and it deserves an award for the effort.",
    "Each seed was weighed, planted, watered by the clock, and measured every morning.",
    "Prices fell in March, rose in April, and ended the quarter where they had begun.",
    "If you only see one documentary about bees this year, make it this one.",
)


@dataclass(frozen=True)
class Documents:
    """Documents as token ids, none empty, none longer than the network reads in one piece."""

    source: str
    ids: tuple[Ids, ...]

    def stream(self, length: int, start: int) -> Ids:
        """So many consecutive tokens of the documents read one after another, round and round."""
        tokens = np.concatenate(self.ids)
        return tokens[(start + np.arange(length)) % len(tokens)]


def read_documents(
    path: Path | None, tokenizer: Tokenizer, max_tokens: int, count: int = COUNT
) -> Documents:
    """Held-out documents of a JSON Lines file with a field `text`, or our own sentences."""
    texts = _own_texts(count) if path is None else _read_texts(path, count)
    source = "built-in sentences" if path is None else f"{path.name}, SHA-256 {sha256_of(path)}"
    encoded = tokenizer.encode_batch_fast(texts)
    ids = [np.array(item.ids[:max_tokens], dtype=np.int64) for item in encoded]
    ids = [tokens for tokens in ids if len(tokens)]
    if not ids:
        raise ConfigError(f"{source} holds no text that the tokenizer knows")
    return Documents(source, tuple(ids))


def compose(sentences: int, seed: int) -> str:
    """A text of so many of our own sentences, the same every time."""
    return " ".join(np.random.default_rng(seed).choice(_SENTENCES, sentences))


def _own_texts(count: int) -> list[str]:
    """Documents of one to sixty sentences each, the same every time."""
    random = np.random.default_rng(0)
    sizes = np.exp(random.uniform(0, np.log(60), count)).astype(int)
    return [" ".join(random.choice(_SENTENCES, size)) for size in sizes]


def _read_texts(path: Path, count: int) -> list[str]:
    if not path.is_file():
        raise ConfigError(f"there is no file {path}")
    if path.stat().st_size > _MAX_FILE_BYTES:
        raise ConfigError(f"{path} is larger than {_MAX_FILE_BYTES} bytes; give fewer documents")
    texts: list[str] = []
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            if len(texts) == count:
                break
            try:
                texts.append(str(json.loads(line)["text"]))
            except (json.JSONDecodeError, KeyError, TypeError):
                raise ConfigError(
                    f'{path}, line {number}: each line must be an object like {{"text": "…"}}'
                ) from None
    return texts
