"""From stored results to the page `docs/peers.md`: no figure is written by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from benchmarks.peers.figures import COLUMNS, Cell, Results, Row, find_run
from benchmarks.peers.registry import LEFT_OUT, LIMIT, OURS, SERVERS, Server
from benchmarks.peers.tuning import best_settings, merit, rows_of
from benchmarks.peers.verdicts import goals, where_behind
from benchmarks.peers.workload import SHARE_OF_LIMIT, TITLES
from benchmarks.store import Store

_BODY = Path(__file__).parent / "page.md"
_QUIET = 0.05  # share of the processors that others may use without a word
_LETTERS = dict(zip(TITLES, "abcd", strict=True))


def write_page(store: Store, name: str | None, page: Path) -> None:
    """Write the page of a run, or of the last comparison."""
    results = Results(store, find_run(store, name))
    page.write_text(markdown(results), encoding="utf-8")


def markdown(results: Results) -> str:
    """The page."""
    template = _BODY.read_text(encoding="utf-8")
    parts = {
        "HEAD": _head(results),
        "LOADS": "\n".join(_load(results, name) for name in TITLES),
        "VERDICT": _verdict(results),
        "UNBATCHED": _unbatched(),
        "SERVERS": _servers(results),
        "SETTINGS": _settings(results),
        "TUNING": "\n".join(_tuning(server) for server in SERVERS if server.name != OURS),
        "LEFT_OUT": "\n".join(f"- **{name}**: {why}" for name, why in LEFT_OUT.items()),
    }
    for key, text in parts.items():
        template = template.replace(f"<!-- {key} -->", text.strip())
    return template


def _head(results: Results) -> str:
    run, test = results.run, results.any_test
    plan = test.settings["plan"]
    bundle = test.bundle.name if test.bundle else "?"
    others = _others_share(results)
    busy = f" Others used {others:.0%} of the processors: not the figures." * (others > _QUIET)
    quick = " **A quick look: it shows that all works.**" * (plan["name"] == "quick")
    return (
        f"Measured on {run.environment.title}, {run.environment.system}, on {run.started[:10]}, "
        f"with the bundle `{bundle}`, {plan['rounds']} round{'s' * (plan['rounds'] > 1)}.{busy}"
        f"{quick} Run `{run.run}`, commit `{(run.environment.commit or 'unknown')[:12]}`."
    )


def _others_share(results: Results) -> float:
    """The mean share of the processors that others used during the loads."""
    tests = [test for server in SERVERS for test in results.of(server.name) if test.requests]
    shares = [float(test.settings["others_share"]) for test in tests]
    return sum(shares) / max(1, len(shares))


def _load(results: Results, name: str) -> str:
    limit = results.row(LIMIT, name)
    lines = [f"### ({_LETTERS[name]}) {TITLES[name].capitalize()}", "", _about(results, name), ""]
    lines += ["| server | " + " | ".join(COLUMNS) + " |", "|---" * (len(COLUMNS) + 1) + "|"]
    if limit is not None:
        rate = _text("documents/s", limit.cells["documents/s"], results)
        lines.append(f"| the limit: no HTTP | {rate} |" + " – |" * (len(COLUMNS) - 1))
    rows = [(server, results.row(server.name, name)) for server in SERVERS]
    lines += [_row(server, row, results) for server, row in rows if row is not None]
    return "\n".join(lines) + "\n"


def _about(results: Results, name: str) -> str:
    tests = [test for server in SERVERS for test in results.of(server.name)]
    rate = next((t.offered_per_second for t in tests if t.scenario == name), None)
    plan = results.any_test.settings["plan"]
    if rate is None:
        return f"{plan['clients']} clients, every document once: {plan['documents']} documents."
    share = f"{SHARE_OF_LIMIT[name]:.0%} of the limit"
    if name == "bursts":
        return (
            f"Lengths as in (b); {rate:.1f} documents a second on average ({share}), but all of "
            "four seconds' arrivals come in the first 0.8."
        )
    return f"{rate:.1f} documents a second arrive ({share}), Poisson."


def _row(server: Server, row: Row, results: Results) -> str:
    if row.failure:
        return f"| {server.title} | {row.failure} |" + " |" * (len(COLUMNS) - 1)
    cells = [_text(column, row.cells.get(column), results) for column in COLUMNS]
    title = f"**{server.title}**" if server.name == OURS else server.title
    return f"| {title} | " + " | ".join(cells) + " |"


def _text(column: str, cell: Cell | None, results: Results) -> str:
    if cell is None:
        return "–"
    if column == "documents/s":
        return _with_range(cell, digits=1)
    if column == "memory":
        return f"{cell.middle / 2**20:,.0f} MiB"
    if column == "failed":
        return f"{cell.middle:.1%}" if cell.middle else "0"
    if math.isinf(cell.middle):
        return f"> {results.any_test.settings['plan']['patience']:g} s"
    return f"{cell.middle * 1000:,.0f} ms"


def _with_range(cell: Cell, digits: int) -> str:
    middle, low, high = (
        f"{value:.{digits}f}" for value in (cell.middle, min(cell.values), max(cell.values))
    )
    return f"{middle} ({low} to {high})" if len(cell.values) > 1 else middle


def _verdict(results: Results) -> str:
    behind = where_behind(results)
    reached = "\n".join(f"- {line}" for line in goals(results))
    if not behind:
        none = "No peer is ahead of Longdoc in any column of (a) to (d), nor with its first answer."
        return f"{none}\n\n{reached}"
    listed = "\n".join(f"- {line}" for line in behind)
    return f"Where a peer is ahead of Longdoc:\n\n{listed}\n\nWhat was aimed at:\n\n{reached}"


def _unbatched() -> str:
    """What the peers do when each document runs alone, as far as their settings were tried."""
    rates = {
        server.title: max(rates)
        for server in SERVERS
        if (
            rates := [
                row["found"]["mixed"]
                for row in rows_of(server)
                if row["settings"].get("batch", 1) == 1 and "reason" not in row["found"]
            ]
        )
    }
    ordered = sorted(rates.items(), key=lambda each: -each[1])
    listed = ", ".join(f"{title} {rate:.0f}" for title, rate in ordered)
    return (
        "Batches padded to the longest are what holds most peers back on mixed lengths. With "
        "batching off, which is not what their documentations recommend for throughput, their "
        f"documents/s in (b) were, when [settings were tried](#what-was-tried): {listed}."
    )


def _servers(results: Results) -> str:
    lines = [
        "| server | version | ONNX Runtime | tokenizers | first answer after | most that scores "
        "differ under load | alone, from the limit's |",
        "|---|---|---|---|---|---|---|",
    ]
    for server in SERVERS:
        tests = [test for test in results.of(server.name) if test.requests]
        start = results.start(server.name)
        if start is None:
            continue
        about = [test.settings for test in tests]
        versions = about[-1]["versions"]
        apart = [
            max((each.get(name, 0.0) for each in about), default=0.0)
            for name in ("difference_under_load", "difference_from_limit")
        ]
        lines.append(
            f"| {server.title} | {versions.get(server.package, '?')} | {versions['onnxruntime']} "
            f"| {versions['tokenizers']} | {_with_range(start, digits=2)} s "
            f"| {apart[0]:.1e} | {apart[1]:.1e} |"
        )
    return "\n".join(lines)


def _settings(results: Results) -> str:
    """What each server ran with, as it was stored."""
    lines = []
    for server in SERVERS:
        stored = [test.settings["server"] for test in results.of(server.name)]
        chosen = _words(stored[-1] if stored else {})
        lines.append(f"- **{server.title}**{': ' + chosen if chosen else ''}. {server.basis}")
    return "\n".join(lines)


def _tuning(server: Server) -> str:
    rows = sorted(rows_of(server), key=_merit, reverse=True)
    if not rows:
        return ""
    best = dict(best_settings(server))
    about = ", ".join(sorted({f"`{row['bundle']}`" for row in rows}))
    lines = [
        f"**{server.title}** ({rows[0]['documents']} documents, bundle {about}, "
        f"{max(row['date'] for row in rows)})",
        "",
        "| settings | (a) documents/s | (b) documents/s | failed |",
        "|---|---|---|---|",
    ]
    for row in rows:
        mark = " **chosen**" if row["settings"] == best else ""
        found = row["found"]
        shown = f"{_words(row['settings'])}{mark}"
        if "reason" in found:
            lines.append(f"| {shown} | {found['reason']} | | |")
        else:
            lines.append(
                f"| {shown} | {found['fixed']:.1f} | {found['mixed']:.1f} | {found['failed']} |"
            )
    return "\n".join(lines) + "\n"


def _merit(row: dict[str, Any]) -> float:
    return 0.0 if "reason" in row["found"] else merit(row["found"])


def _words(settings: Any) -> str:
    """Settings for people: `workers 2, threads 1`."""
    parts = []
    for name, value in settings.items():
        if name == "variables":
            parts += [f"`{key}={text}`" for key, text in value.items()]
        elif name == "batch" and value == 1:
            parts.append("no batching")
        else:
            parts.append(f"{name} {value if isinstance(value, int) else json.dumps(value)}")
    return ", ".join(parts)
