"""What a load test prints: a live line, a table, remarks."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any, TextIO

from benchmarks.records import LoadTest

_EVERY = 10.0  # seconds between lines where no line can be overwritten


class LiveLine:
    """Says how far a load is: on a terminal in one line, elsewhere now and then."""

    def __init__(self, total: float, stream: TextIO | None = None) -> None:
        self._total = total
        self._stream = stream or sys.stderr
        self._last = 0.0
        self._width = 0

    def show(self, progress: dict[str, Any]) -> None:
        """Show what the generator reports."""
        line = describe_progress(progress, self._total)
        if self._stream.isatty():
            self._stream.write("\r" + line.ljust(self._width))
            self._width = len(line)
        elif time.monotonic() - self._last >= _EVERY:
            self._last = time.monotonic()
            self._stream.write(line + "\n")
        self._stream.flush()

    def clear(self) -> None:
        """Make room for what comes next."""
        if self._width:
            self._stream.write("\r" + " " * self._width + "\r")
            self._stream.flush()
            self._width = 0


def describe_progress(progress: dict[str, Any], total: float) -> str:
    """One line: phase, rate, latency of the last seconds, errors, memory."""
    clock = progress["clock"]
    if clock < 0:
        phase = f"warm-up, {-clock:.0f} s left"
    elif clock <= total:
        phase = f"{clock:.0f} of {total:.0f} s"
    else:
        phase = "waiting for the last answers"
    parts = [phase, f"{progress['per_second']:.1f}/s"]
    parts += [f"{name} {_ms(progress[name])}" for name in ("p50", "p99")]
    parts.append(f"{progress['errors']} errors")
    parts.append(f"{progress['in_flight']} in flight")
    if progress["memory"]:
        parts.append(f"{progress['memory'] / 1e6:.0f} MB")
    return "  ".join(parts)


def summary_table(tests: Sequence[LoadTest]) -> str:
    """What all loads share as a heading, then a row for each, and one for each kind of caller."""
    heading, titles = split_titles(tests)
    rows = [["", "load", "requests", "docs/s", "p50", "p90", "p95", "p99", "errors", "memory"]]
    for test, own in zip(tests, titles, strict=True):
        rows.append([own, *_cells(test)])
        if len(test.by_request) > 1:
            rows += [
                [f"  {k.request}", "", str(k.requests), "", _ms(k.p50), "", _ms(k.p95), _ms(k.p99),
                 str(k.errors), ""]
                for k in test.by_request
            ]  # fmt: skip
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join(cells[0 if widths[0] else 1 :]).rstrip())
    lines.insert(1, "-" * max(len(line) for line in lines))
    return "\n".join([*([heading] if heading else []), *lines])


def split_titles(tests: Sequence[LoadTest]) -> tuple[str, list[str]]:
    """What all tests' titles share, and what is each one's own."""
    return _split([_title_parts(test) for test in tests])


def service_titles(tests: Sequence[LoadTest]) -> list[str]:
    """What distinguishes each test's service from the others', in a few words."""
    shared, own = _split([_title_parts(test)[:-1] for test in tests])
    return own if any(own) else [shared] * len(own)


def _split(titles: Sequence[Sequence[str]]) -> tuple[str, list[str]]:
    shared = [len(set(column)) == 1 for column in zip(*titles, strict=True)]

    def join(parts: Sequence[str], *, common: bool) -> str:
        return " · ".join(p for p, same in zip(parts, shared, strict=True) if p and same == common)

    return join(titles[0], common=True), [join(parts, common=False) for parts in titles]


def load_of(test: LoadTest) -> str:
    """The load in a few words."""
    if test.model == "open":
        return f"{test.offered_per_second or 0:.3g}/s"
    return f"{test.users} user" + "s" * (test.users != 1)


def title_of(test: LoadTest) -> str:
    """What was loaded and with what, in a few words."""
    return " · ".join(part for part in _title_parts(test) if part)


def remarks(test: LoadTest) -> list[str]:
    """What a reader must know besides the figures."""
    found = [f"{count} × {kind}" for kind, count in sorted(test.errors.items())]
    refused = test.settings.get("refused", {})
    if refused.get("here") and refused["here"] == refused.get("service"):
        found.append(f"{refused['here']} refused, as the service's own metric says")
    silent = set(test.settings.get("mix", {})) - {kind.request for kind in test.by_request}
    if silent and test.requests:
        found.append(f"nothing was sent by: {', '.join(sorted(silent))}; offer more load")
    return found + ([test.note] if test.note else [])


def _title_parts(test: LoadTest) -> list[str]:
    precision = "" if test.precision in (None, "fp32") else str(test.precision)
    return [test.attention or test.server, test.engine or "", precision, test.scenario]


def _cells(test: LoadTest) -> list[str]:
    memory = test.service_memory_bytes
    return [
        load_of(test),
        str(test.requests),
        f"{test.documents_per_second or 0:.3g}",
        *(_ms(getattr(test, name)) for name in ("p50", "p90", "p95", "p99")),
        str(sum(test.errors.values())),
        f"{memory / 1e6:.0f} MB" if memory else "–",
    ]


def _ms(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    return f"{seconds * 1e3:.1f} ms" if seconds < 10 else f"{seconds:.1f} s"
