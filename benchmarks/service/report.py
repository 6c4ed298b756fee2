"""From a result file to the page `docs/serving-figures.md`: no figure is written by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.quiet import MOST_STOLEN
from benchmarks.service.servers import BATCHING, OURS, PLAIN


def markdown(result: Mapping[str, Any]) -> str:
    """The page."""
    machine = result["environment"]
    parts = [
        "# What the service measures\n\n"
        f"Measured on {machine['cpu']}, {machine['cores']} cores, with "
        f"Python {machine['python']} and ONNX Runtime {machine['onnxruntime']}, "
        f"bundle `{result['bundle']}`, on {result['date']}, "
        f"plan `{result['plan_name']}`. Made from `{result['file']}` by "
        "`python -m benchmarks.service report`.\n\n" + _quiet(result["measures"]) + "\n"
    ]
    makers = {
        "overhead": _overhead,
        "mixed": _mixed,
        "short_behind_long": _short_behind_long,
        "overload": _overload,
        "cold_start": _cold_start,
    }
    parts += [makers[name](figures) for name, figures in result["measures"].items()]
    return "\n".join(parts)


def _quiet(measures: Mapping[str, Any]) -> str:
    """How far others disturbed what is shown."""
    stolen, again = _noted(measures, "stolen"), _noted(measures, "again")
    return (
        f"Whatever was measured while the host gave others more than {MOST_STOLEN:.0%} of the "
        f"cores' time was measured again, {sum(again)} times in all; of what is shown, they took "
        f"{float(np.mean(stolen or [0])):.1%} on average and {max(stolen, default=0):.1%} at most."
    )


def _noted(found: Any, name: str) -> list[float]:
    """All values of a name, however deep."""
    if isinstance(found, Mapping):
        here = [found[name]] if name in found else []
        return here + [value for inner in found.values() for value in _noted(inner, name)]
    if isinstance(found, list):
        return [value for inner in found for value in _noted(inner, name)]
    return []


def _overhead(figures: Mapping[str, Any]) -> str:
    rows = [
        f"| {length} | {case['bare']:.1f} | {case['best_schedule']} | {case['served']:.1f} "
        f"| {case['ratio']:.1%} | {min(case['ratios']):.1%} to {max(case['ratios']):.1%} "
        f"| {_verdict(case['ratio'] >= 0.9)} |"
        for length, case in figures.items()
    ]
    return _table(
        "Overhead",
        "Documents per second through HTTP (32 clients) against the bare engine in a loop: text "
        "to logits, a thread with a session of its own on each core, longest first, the same texts "
        "and tokenizer, each alone or "
        "the short ones in groups, whichever is faster. Both take turns, the bare engine before "
        "and after the service; all figures are medians, and the spread is that of the rounds.",
        "tokens | bare engine | its runs | served | share | spread | at least 90%",
        rows,
    )


def _mixed(figures: Mapping[str, Any]) -> str:
    rows = []
    for kind in (OURS, PLAIN, BATCHING):
        cells = [_over_rounds(figures, kind, name) for name in ("documents_per_second", "p50")]
        p99, short = (_over_rounds(figures, kind, name) for name in ("p99", "p99_short"))
        rows.append(
            f"| {kind} | {cells[0]:.1f} | {_ms(cells[1])} | {_ms(p99)} | {_ms(short)} "
            f"| {_over_rounds(figures, kind, 'peak_bytes') / 2**20:,.0f} MiB |"
        )
    goals = [
        ("documents/s over batching, at least 2", "throughput_over_batching", 2.0, True),
        ("documents/s over plain, more than 1", "throughput_over_plain", 1.0, True),
        ("p50 over plain, at most a third", "p50_over_plain", 1 / 3, False),
        ("p50 over batching, at most a third", "p50_over_batching", 1 / 3, False),
        ("p99 over plain, at most 1.5", "p99_over_plain", 1.5, False),
    ]
    return _table(
        "Mixed lengths",
        "Log-normal lengths from 32 to 16,384 tokens, 32 clients, every document once.",
        "server | documents/s | p50 | p99 | p99 below 512 tokens | peak memory",
        rows,
    ) + _goals(figures, goals)


def _short_behind_long(figures: Mapping[str, Any]) -> str:
    rows = [
        f"| {kind} | {_ms(_over_rounds(figures, kind, 'p50_short'))} "
        f"| {_ms(_over_rounds(figures, kind, 'p99_short'))} "
        f"| {_ms(_over_rounds(figures, kind, 'p99_long'))} "
        f"| {_over_rounds(figures, kind, 'peak_bytes') / 2**20:,.0f} MiB |"
        for kind in (OURS, PLAIN)
    ]
    goals = [
        ("p99 of short ones over plain, at most 0.5", "p99_short_over_plain", 0.5, False),
        ("p99 of long ones over plain, at most 1", "p99_long_over_plain", 1.0, False),
        ("peak memory over plain, below 1", "peak_bytes_over_plain", 1.0, False),
    ]
    return _table(
        "Short behind long",
        "5% of the documents have 16,384 tokens, the others fewer than 512; "
        f"{figures['rate']:.1f} arrive a second (60% of capacity), and latency counts from the "
        "scheduled time.",
        "server | p50 short | p99 short | p99 long | peak memory",
        rows,
    ) + _goals(figures, goals)


def _overload(figures: Mapping[str, Any]) -> str:
    statuses = ", ".join(f"{count:,} × {status}" for status, count in figures["statuses"].items())
    goodput, in_tokens = (
        f"{figures[name]:.1%} ({min(figures['ratios'][name]):.1%} to "
        f"{max(figures['ratios'][name]):.1%})"
        for name in ("goodput_over_peak", "token_goodput_over_peak")
    )
    rows = [
        f"| offered | {figures['offered_per_second']:.0f} a second, five times the peak |",
        f"| goodput | {goodput} of the peak, at least 90%: "
        f"{_verdict(figures['goodput_over_peak'] >= 0.9)}; counted in tokens {in_tokens} |",
        f"| answers | {statuses} |",
        f"| a refusal, median | {_ms(figures['refusal_seconds_p50'])} (below 50 ms) |",
        f"| cores used | {_cores(figures['cores'])} |",
        f"| peak memory | {figures['peak_bytes'] / 2**20:,.0f} MiB |",
        f"| normal again after | {figures['recovered_after_seconds']:.1f} s (at most 5) |",
    ]
    text = (
        "Five times capacity, on schedule, by a load generator on the same cores. The peak is the "
        "mean of what 16 clients got just before and just after. Normal again: from then on at "
        "most one short document in twenty took more than twice what 95% took before. "
        f"{_rounds(figures)}: shares are medians, with their spread; of the rest the worst."
    )
    return _table("Overload", text, "what | measured", rows)


def _cores(cores: Mapping[str, float]) -> str:
    names = {"server": "service", "generator": "load generator", "others": "other programs"}
    return ", ".join(f"{names[name]} {value:.2f}" for name, value in cores.items())


def _cold_start(figures: Mapping[str, Any]) -> str:
    rows = [f"| {figures['median']:.2f} s | {figures['most']:.2f} s | {len(figures['seconds'])} |"]
    return _table(
        "Cold start",
        "From process start to the first 200 on `/readyz`; the goal is 2.5 s.",
        "median | most | starts",
        rows,
    )


def _table(title: str, text: str, head: str, rows: list[str]) -> str:
    line = "|---" * len(head.split("|")) + "|"
    return f"## {title}\n\n{text}\n\n| {head} |\n{line}\n" + "\n".join(rows) + "\n"


def _goals(figures: Mapping[str, Any], goals: list[tuple[str, str, float, bool]]) -> str:
    """The medians of the rounds' ratios, their spread, and whether they reach what is wanted."""
    lines = []
    for words, name, bound, upward in goals:
        value, ratios = figures[name], figures["ratios"][name]
        reached = _verdict(value >= bound if upward else value <= bound)
        lines.append(f"- {words}: {value:.2f} ({min(ratios):.2f} to {max(ratios):.2f}), {reached}")
    return "\n" + "\n".join(lines) + "\n"


def _verdict(reached: bool) -> str:
    return "reached" if reached else "missed"


def _rounds(figures: Mapping[str, Any]) -> str:
    count = len(figures["rounds"])
    return f"{count} rounds" if count > 1 else "One round"


def _over_rounds(figures: Mapping[str, Any], kind: str, name: str) -> float:
    values = sorted(row[kind][name] for row in figures["rounds"] if kind in row)
    return float(values[len(values) // 2])


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:,.0f} ms"
