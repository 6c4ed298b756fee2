"""Limits that a load must keep: `p99=500ms`, `errors=1%`. For CI and for the peak finder."""

from __future__ import annotations

import re
from dataclasses import dataclass

from benchmarks.records import LoadTest
from models.errors import ConfigError

_PERCENTILES = ("p50", "p90", "p95", "p99")


@dataclass(frozen=True)
class Limit:
    """A figure and the most it may be: seconds, or a share of the requests."""

    figure: str
    most: float

    def __str__(self) -> str:
        if self.figure == "errors":
            return f"errors={self.most:.2%}"
        return f"{self.figure}={self.most * 1e3:g}ms"

    def exceeded(self, test: LoadTest) -> str:
        """A sentence when a test is above it, else nothing; nothing answered is above any."""
        if self.figure == "errors":
            share = sum(test.errors.values()) / test.requests if test.requests else 1.0
            return f"errors are {share:.2%}, above {self.most:.2%}" if share > self.most else ""
        found = getattr(test, self.figure)
        if found is None:
            return f"nothing was answered, so {self.figure} cannot be below {self.most * 1e3:g} ms"
        if found > self.most:
            return f"{self.figure} is {found * 1e3:.1f} ms, above {self.most * 1e3:g} ms"
        return ""


def parse_limit(text: str, option: str = "--fail-above") -> Limit:
    """A limit from `p99=500ms`, `p95=2s` or `errors=1%`; a ConfigError says what is wrong."""
    figure, _, value = (part.strip() for part in text.partition("="))
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|%|)", value)
    time = figure in _PERCENTILES and match is not None and match[2] in ("ms", "s")
    share = figure == "errors" and match is not None and match[2] in ("%", "")
    if not match or not (time or share):
        raise ConfigError(
            f"{option}: {text!r} is no limit; write p99=500ms (also p50, p90, p95; ms or s) or "
            "errors=1%"
        )
    most = float(match[1]) * {"ms": 1e-3, "s": 1.0, "%": 0.01, "": 1.0}[match[2]]
    if share and most > 1:
        raise ConfigError(f"{option}: {text!r}; a share of errors is at most 100%")
    return Limit(figure, most)
