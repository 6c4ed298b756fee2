"""How long the documents of a load are, in tokens: fixed, log-normal, or a histogram from a file.

512                            every document has 512 tokens
log-normal                     many short ones, few long ones: median 512, sigma 1.2, 32 to 16,384
log-normal:MEDIAN:SIGMA        the same with others
log-normal:MEDIAN:SIGMA:LOW:HIGH
histogram:FILE                 lines of `TOKENS WEIGHT` or `LOW-HIGH WEIGHT`
documents                      as the user's own documents are
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Protocol

from models.errors import ConfigError

LONGEST = 1 << 20
_MOST_BINS = 10_000


class Distribution(Protocol):
    """Lengths that are drawn."""

    @property
    def title(self) -> str:
        """What it is, in a few words."""

    def draw(self, source: random.Random) -> int:
        """One length in tokens, at least 1."""


@dataclass(frozen=True)
class Fixed:
    """Every document has the same length."""

    tokens: int

    @property
    def title(self) -> str:
        """What it is, in a few words."""
        return f"{self.tokens:,} tokens"

    def draw(self, source: random.Random) -> int:  # noqa: ARG002 - one contract for all
        """The length."""
        return self.tokens


@dataclass(frozen=True)
class LogNormal:
    """Lengths as documents have them, clipped to a range."""

    median: float = 512
    sigma: float = 1.2
    low: int = 32
    high: int = 16_384

    @property
    def title(self) -> str:
        """What it is, in a few words."""
        return f"log-normal, median {self.median:g}, {self.low:,} to {self.high:,} tokens"

    def draw(self, source: random.Random) -> int:
        """One length."""
        drawn = source.lognormvariate(math.log(self.median), self.sigma)
        return round(min(self.high, max(self.low, drawn)))


@dataclass(frozen=True)
class Histogram:
    """Ranges of lengths with their weights; within a range all lengths are alike."""

    name: str
    bins: tuple[tuple[int, int, float], ...]

    @property
    def title(self) -> str:
        """What it is, in a few words."""
        return f"histogram {self.name}"

    def draw(self, source: random.Random) -> int:
        """One length."""
        weights = list(accumulate(weight for _, _, weight in self.bins))
        low, high, _ = source.choices(self.bins, cum_weights=weights)[0]
        return source.randint(low, high)


@dataclass(frozen=True)
class AsTheyAre:
    """The user's own documents, each as long as it is."""

    title: str = "own documents"


#: How long the documents of a load are.
Lengths = Distribution | AsTheyAre


def parse_lengths(text: str) -> Lengths:
    """One distribution from its words; a ConfigError says what is wrong."""
    kind, _, rest = text.strip().partition(":")
    if kind.isdecimal() and not rest:
        return Fixed(_tokens(kind, text))
    if kind == "log-normal":
        return _log_normal(rest, text)
    if kind == "histogram" and rest:
        return read_histogram(Path(rest))
    if kind == "documents" and not rest:
        return AsTheyAre()
    raise ConfigError(
        f"--lengths: {text.strip()!r} is no length; give a number of tokens, log-normal, "
        "log-normal:MEDIAN:SIGMA[:LOW:HIGH], histogram:FILE, or documents"
    )


def read_histogram(path: Path) -> Histogram:
    """A histogram from a file of `TOKENS WEIGHT` or `LOW-HIGH WEIGHT` lines; # begins a comment."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text in UTF-8"
        raise ConfigError(f"the histogram {path} cannot be read: {reason}") from None
    bins = []
    for number, line in enumerate(lines, 1):
        content = line.partition("#")[0].replace(",", " ").split()
        if content:
            bins.append(_bin(content, f"{path}, line {number}"))
    if not bins or len(bins) > _MOST_BINS:
        raise ConfigError(f"{path} holds {len(bins)} ranges; give from 1 to {_MOST_BINS:,}")
    if not any(weight for _, _, weight in bins):
        raise ConfigError(f"{path}: every weight is 0")
    return Histogram(path.name, tuple(bins))


def _bin(content: list[str], where: str) -> tuple[int, int, float]:
    wanted = "`TOKENS WEIGHT` or `LOW-HIGH WEIGHT`"
    if len(content) != 2:
        raise ConfigError(f"{where}: give {wanted}")
    low, _, high = content[0].partition("-")
    if not low.isdecimal() or not (high or low).isdecimal():
        raise ConfigError(f"{where}: {content[0]!r} is no range of tokens; give {wanted}")
    first, last = _tokens(low, where), _tokens(high or low, where)
    try:
        weight = float(content[1])
    except ValueError:
        weight = -1.0
    if not (math.isfinite(weight) and weight >= 0):
        raise ConfigError(f"{where}: {content[1]!r} is no weight; give a number of at least 0")
    if first > last:
        raise ConfigError(f"{where}: the range {content[0]} ends before it begins")
    return first, last, weight


def _log_normal(rest: str, text: str) -> LogNormal:
    parts = rest.split(":") if rest else []
    try:
        values = [float(part) for part in parts]
    except ValueError:
        values = [math.nan]
    if len(values) not in (0, 2, 4) or not all(math.isfinite(value) for value in values):
        raise ConfigError(f"--lengths: {text!r}; write log-normal:MEDIAN:SIGMA[:LOW:HIGH]")
    numbers = values + [512, 1.2, 32, 16_384][len(values) :]
    median, sigma, low, high = numbers
    if not (1 <= low <= high <= LONGEST and 1 <= median <= LONGEST and 0 <= sigma <= 10):
        raise ConfigError(
            f"--lengths: {text!r}; the median must be from 1 to {LONGEST:,}, sigma from 0 to 10, "
            "and LOW not above HIGH"
        )
    return LogNormal(median, sigma, round(low), round(high))


def _tokens(text: str, where: str) -> int:
    tokens = int(text[:20])
    if not 1 <= tokens <= LONGEST:
        raise ConfigError(f"{where}: a length must be from 1 to {LONGEST:,} tokens; got {text}")
    return tokens
