"""A load test as one HTML file that loads nothing from elsewhere."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from html import escape
from pathlib import Path

from benchmarks.records import LoadTest, Run
from loadtests.svg import line_chart
from loadtests.table import load_of, remarks, service_titles, split_titles, title_of
from models.errors import ConfigError

_STYLE = """
:root { color-scheme: light dark; --line: #8884; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
.wide { overflow-x: auto; }
th, td { text-align: right; padding: .2rem .6rem; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; } .wide td { white-space: nowrap; }
svg { width: 100%; max-width: 45rem; font-size: 12px; } svg text { fill: currentColor; }
.grid { stroke: var(--line); } .legend svg { width: 26px; height: 10px; }
.legend span { margin-right: 1.2rem; white-space: nowrap; }
.remark { border-left: 4px solid #d55e00; padding-left: .8rem; }
details { margin: 1rem 0; } summary { cursor: pointer; }
summary h2 { display: inline; font-size: 1rem; }
code { overflow-wrap: anywhere; }
"""


def write_report(
    path: Path, tests: Sequence[LoadTest], run: Run, conclusions: Sequence[str]
) -> None:
    """Write the report."""
    try:
        path.write_text(render(tests, run, conclusions), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--html: {path} cannot be written: {error.strerror}") from None


def render(tests: Sequence[LoadTest], run: Run, conclusions: Sequence[str]) -> str:
    """The report's HTML."""
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>Longdoc load test</title><style>{_STYLE}</style></head><body>",
        "<h1>Load test</h1>",
        f"<p>{escape(run.title)}<br><code>{escape(run.command)}</code></p>",
        "<p>Latency counts from when a request was due. The warm-up is not in the figures.</p>",
        *(f'<p class="remark">{escape(line)}</p>' for line in conclusions),
        *_comparisons(tests),
        _overview(tests),
        *(_section(test, alone=len(tests) == 1) for test in tests),
        _environment(run),
        "</body></html>",
    ]
    return "\n".join(parts)


def _overview(tests: Sequence[LoadTest]) -> str:
    heading, titles = split_titles(tests)
    rows = [
        [own, load_of(t), f"{t.requests:,}", f"{t.documents_per_second or 0:,.1f}",
         *(_ms(getattr(t, name)) for name in ("p50", "p90", "p95", "p99")),
         f"{sum(t.errors.values()):,}", _mb(t.service_memory_bytes)]
        for t, own in zip(tests, titles, strict=True)
    ]  # fmt: skip
    head = ["", "load", "requests", "documents/s", "p50 ms", "p90 ms", "p95 ms", "p99 ms", "errors",
            "memory MB"]  # fmt: skip
    return f"<h2>{escape(heading)}</h2>" * (len(tests) > 1) + _table(head, rows)


def _comparisons(tests: Sequence[LoadTest]) -> Iterable[str]:
    """Charts over all loads: by rate for each service and its documents, by length for all."""
    rates: dict[str, dict[float, LoadTest]] = defaultdict(dict)
    for test in tests:
        if test.offered_per_second is not None:
            rates[title_of(test)][test.offered_per_second] = test  # the last, if tried again
    for title, by_rate in rates.items():
        if len(by_rate) > 1:
            lines = {
                name: [(rate, value * 1e3) for rate, test in by_rate.items()
                       if (value := getattr(test, name)) is not None]
                for name in ("p50", "p90", "p95", "p99")
            }  # fmt: skip
            yield f"<h2>Latency against offered load</h2><p>{escape(title)}</p>"
            yield line_chart(lines, x="requests offered a second", y="milliseconds", log_y=True)
    if len({t.length for t in tests if t.length}) > 1:
        yield "<h2>Against document length</h2><h3>Latency, median</h3>"
        latency = _by_length(tests, lambda t: None if t.p50 is None else t.p50 * 1e3)
        yield line_chart(latency, x="tokens", y="milliseconds", log_x=True, log_y=True)
        yield "<h3>Peak memory of the service</h3>"
        memory = _by_length(
            tests, lambda t: t.service_memory_bytes and t.service_memory_bytes / 1e6
        )
        yield line_chart(memory, x="tokens", y="MB", log_x=True)


def _by_length(
    tests: Sequence[LoadTest], figure: Callable[[LoadTest], float | None]
) -> dict[str, list[tuple[float, float]]]:
    """A line for each service; for each load on it, when there were several at one length."""
    names = service_titles(tests)
    points = Counter((name, test.length) for name, test in zip(names, tests, strict=True))
    several = any(count > 1 for (_, length), count in points.items() if length)
    lines: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for name, test in zip(names, tests, strict=True):
        value = figure(test)
        if test.length and value is not None:
            lines[f"{name} · {load_of(test)}" if several else name].append((test.length, value))
    return lines


def _section(test: LoadTest, *, alone: bool) -> str:
    """A load by itself: folded, unless there is no other or something to say of it."""
    said = remarks(test)
    parts = [
        f"<details{' open' * (alone or bool(said))}><summary><h2>{escape(title_of(test))} · "
        f"{escape(load_of(test))}</h2></summary>"
    ]
    parts += [f'<p class="remark">{escape(line)}</p>' for line in said]
    times = {
        name: [(second.at, value * 1e3) for second in test.by_second
               if (value := getattr(second, name)) is not None]
        for name in ("p50", "p99")
    }  # fmt: skip
    parts += ["<h3>Latency of what was due in each second</h3>",
              line_chart(times, x="seconds", y="milliseconds", log_y=True)]  # fmt: skip
    counts = {
        name: [(second.at, float(getattr(second, name))) for second in test.by_second]
        for name in ("sent", "answered", "errors")
    }
    parts += ["<h3>Requests in each second</h3>", line_chart(counts, x="seconds", y="requests")]
    held = [(s.at, s.memory_bytes / 1e6) for s in test.by_second if s.memory_bytes]
    if held:
        parts += ["<h3>Memory of the service</h3>",
                  line_chart({"memory": held}, x="seconds", y="MB")]  # fmt: skip
    head = ["requests", "errors", "p50 ms", "p95 ms", "p99 ms"]
    rows = [
        [f"{b.low:,} to {b.high - 1:,}", f"{b.requests:,}", f"{b.errors:,}", _ms(b.p50), _ms(b.p95),
         _ms(b.p99)]
        for b in test.by_length
    ]  # fmt: skip
    parts += ["<h3>By tokens of a request</h3>", _table(["tokens", *head], rows)]
    if len(test.by_request) > 1:
        kinds = [
            [k.request, f"{k.requests:,}", f"{k.errors:,}", _ms(k.p50), _ms(k.p95), _ms(k.p99)]
            for k in test.by_request
        ]
        parts += ["<h3>By kind of caller</h3>", _table(["", *head], kinds)]
    return "\n".join([*parts, _generator(test), _metrics(test), "</details>"])


def _generator(test: LoadTest) -> str:
    own = test.generator
    if own is None:
        return ""
    verdict = (
        "It was the bottleneck." if test.generator_bottleneck else "It was not the bottleneck."
    )
    return (
        f"<p>The load generator ({own.processes} process{'es' * (own.processes > 1)}) used "
        f"{own.cpu_share:.0%} of a core and was late by {own.late_mean * 1e3:.2f} ms on average, "
        f"{own.late_p99 * 1e3:.1f} ms at the 99th percentile. {verdict}</p>"
    )


def _metrics(test: LoadTest) -> str:
    names = [n for n in test.metrics_before if n.startswith(("longdoc_", "process_"))]
    rows = [
        [name, f"{test.metrics_before[name]:,.6g}", f"{test.metrics_after[name]:,.6g}",
         f"{test.metrics_after[name] - test.metrics_before[name]:+,.6g}"]
        for name in names
        if name in test.metrics_after and test.metrics_after[name] != test.metrics_before[name]
    ]  # fmt: skip
    if not rows:
        return ""
    table = _table(["metric", "before", "after", "change"], rows)
    return f"<details><summary>The service's metrics before and after</summary>{table}</details>"


def _environment(run: Run) -> str:
    about = run.environment
    rows = [["machine", about.title], ["system", about.system], ["commit", about.commit or "–"],
            ["cores in use before", f"{run.load_before:g}"]]  # fmt: skip
    rows += [[name, version] for name, version in about.versions.items()]
    return "<h2>Environment</h2>" + _table(["", ""], rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f'<div class="wide"><table><tr>{top}</tr>{body}</table></div>'


def _ms(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds * 1e3:,.1f}"


def _mb(size: int | None) -> str:
    return "–" if size is None else f"{size / 1e6:,.0f}"
