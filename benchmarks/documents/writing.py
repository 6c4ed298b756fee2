"""Writes texts that look like prose: Zipf's law for words, sentences, paragraphs, figures, names.

They mean nothing, and need not: what a service spends on a text depends on its tokens, and a
tokenizer spends as many on these as on real ones, because frequent words are as frequent, and
rare ones as rare, as in English.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import accumulate

from benchmarks.documents import vocabulary as words

_EXPONENT, _SHIFT = 1.05, 2.7  # of Zipf's law as Mandelbrot wrote it
_RARE, _NAME, _FIGURE = 0.025, 0.02, 0.015  # shares among nouns' places and elsewhere
_SHORTEST, _LONGEST = 4, 45  # words of a sentence

#: Which kinds of word a phrase has: function word, adjective, noun, verb, adverb.
_PHRASES = ("fn", "fan", "fnv", "vfn", "fnfn", "fanv", "ffn", "vd", "dvfn", "fnffan", "faan", "nv")
_OFTEN = (9, 8, 7, 8, 7, 5, 5, 2, 2, 3, 1, 1)


class Writer:
    """An endless text from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - documents, not secrets
        kinds = {
            "f": words.FUNCTION.split(),
            "n": words.NOUNS.split(),
            "v": words.VERBS.split(),
            "a": words.ADJECTIVES.split(),
            "d": words.ADVERBS.split(),
        }
        self._kinds = {kind: (known, zipf_weights(known)) for kind, known in kinds.items()}
        self._names = words.NAMES.split()
        self._parts = (words.PREFIXES, words.STEMS.split(), words.SUFFIXES.split())

    def words(self) -> Iterator[str]:
        """Words with their punctuation; one that ends a paragraph ends in a line break."""
        while True:
            sentences = self._random.randint(3, 9)
            for number in range(sentences):
                sentence = self._sentence()
                if number == sentences - 1:
                    sentence[-1] += "\n\n"
                yield from sentence

    def _sentence(self) -> list[str]:
        wanted = round(self._random.lognormvariate(2.9, 0.45))
        wanted = min(_LONGEST, max(_SHORTEST, wanted))
        sentence: list[str] = []
        while len(sentence) < wanted:
            if sentence and self._random.random() < 0.18:
                sentence[-1] += ","
            phrase = self._random.choices(_PHRASES, _OFTEN)[0]
            sentence += [self._word(kind) for kind in phrase]
        sentence[0] = sentence[0][0].upper() + sentence[0][1:]
        sentence[-1] = sentence[-1].rstrip(",") + self._random.choices(".?!", (30, 1, 1))[0]
        return sentence

    def _word(self, kind: str) -> str:
        chance = self._random.random()
        if kind == "n" and chance < _RARE:
            return self._rare()
        if kind == "n" and chance < _RARE + _NAME:
            return self._random.choice(self._names)
        if chance > 1 - _FIGURE:
            return self._figure()
        known, weights = self._kinds[kind]
        return self._random.choices(known, cum_weights=weights)[0]

    def _rare(self) -> str:
        return "".join(self._random.choice(part) for part in self._parts)

    def _figure(self) -> str:
        kind = self._random.randrange(4)
        if kind == 0:
            return str(self._random.randint(1850, 2025))
        if kind == 1:
            return f"{self._random.uniform(0, 10):.2f}"
        if kind == 2:
            return f"({self._random.randint(1, 40)})"
        return str(self._random.randint(2, 500))


def zipf_weights(known: Sequence[str]) -> list[float]:
    """Cumulated weights by rank, for `random.choices`."""
    return list(accumulate((rank + _SHIFT) ** -_EXPONENT for rank in range(len(known))))


def join(parts: Sequence[str]) -> str:
    """Words as one text: spaces between them, but not after a line break."""
    text = " ".join(parts)
    return text.replace("\n ", "\n").strip()
