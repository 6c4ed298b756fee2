"""From stored results to the page `docs/peers.md`: no figure is written by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from benchmarks.markdown import bullets, busy_sentence, fill, mebibytes, milliseconds, table
from benchmarks.peers.figures import BUCKETS, COLUMNS, Cell, Results, Row, find_run
from benchmarks.peers.registry import LEFT_OUT, OURS, SERVERS, Server
from benchmarks.peers.settings import best_settings
from benchmarks.peers.verdicts import goals, where_behind
from benchmarks.peers.workload import LETTERS, SHARE_OF_LIMIT, TITLES
from benchmarks.store import Store

_BODY = Path(__file__).parent / "page.md"


def page_of(store: Store, name: str | None = None) -> str:
    """The page of a run, or of the last comparison that finished."""
    return markdown(Results(store, find_run(store, name)))


def markdown(results: Results) -> str:
    """The page."""
    parts = {
        "HEAD": _head(results),
        "LOADS": "\n".join(_load(results, name) for name in TITLES),
        "WAITS": "\n\n".join(filter(None, (_waits(results, name) for name in TITLES))),
        "MEMORY": _memory(results),
        "VERDICT": _verdict(results),
        "SERVERS": _servers(results),
        "BASIS": bullets(f"**{server.title}**. {server.basis}" for server in SERVERS),
        "SETTINGS": "\n".join(_trials(results, server) for server in SERVERS),
        "NOT_BEST": _not_best(results),
        "LEFT_OUT": bullets([*(f"**{name}**: {why}" for name, why in LEFT_OUT.items()),
                             *_absent(results)]),
    }  # fmt: skip
    return fill(_BODY.read_text(encoding="utf-8"), parts)


def _head(results: Results) -> str:
    run, test = results.run, results.any_test
    bundle = test.bundle.name if test.bundle else "?"
    shares = [float(each.settings["others_share"]) for each in results.tests]
    quick = " **A quick look: it shows that all works.**"
    commits = sorted({str(t.settings.get("commit") or run.environment.commit or "unknown")
                      for t in results.tests})  # fmt: skip
    named = ", ".join(f"`{each[:12]}{each[40:]}`" for each in commits)
    rounds = f"{results.rounds} round" + "s" * (results.rounds > 1)
    return (
        f"Measured on {run.environment.title}, {run.environment.system}, on {run.started[:10]}, "
        f"with the bundle `{bundle}`, {rounds}. Run `{run.run}`, commit {named}."
        f"{quick * (test.settings['plan']['name'] == 'quick')}\n\n{busy_sentence(shares)}"
    ).strip()


def _load(results: Results, name: str) -> str:
    rows = []
    limit = results.limit(name)
    if limit is not None:
        blank = ["–"] * len(COLUMNS)
        rows.append(["the graph without a server", _with_range(limit, 1), *blank])
    for server in SERVERS:
        row = results.row(server.name, name)
        if row is not None:
            rows.append(_cells(server, row, results))
    head = ["server", *COLUMNS, "settings"]
    title = f"### ({LETTERS[name]}) {TITLES[name].capitalize()}"
    return f"{title}\n\n{_about(results, name)}\n\n{table(head, rows)}\n"


def _about(results: Results, name: str) -> str:
    rate = next((t.offered_per_second for t in results.tests if t.scenario == name), None)
    plan = results.any_test.settings["plan"]
    if rate is None:
        return f"{plan['clients']} clients, every document once: {plan['documents']} documents."
    share = f"{SHARE_OF_LIMIT[name]:.0%} of the graph's rate without a server"
    if name == "bursts":
        return (
            f"Lengths as in (b); {rate:.1f} documents a second on average ({share}), but all of "
            "four seconds' arrivals come in the first 0.8."
        )
    return f"{rate:.1f} documents a second arrive ({share}), Poisson."


def _cells(server: Server, row: Row, results: Results) -> list[str]:
    if row.failure:
        return [server.title, "not measured", *["–"] * len(COLUMNS)]
    title = f"**{server.title}**" if server.name == OURS else server.title
    found = (_text(column, row.cells.get(column), results) for column in COLUMNS)
    return [title, *found, _words(row.settings)]


def _text(column: str, cell: Cell | None, results: Results) -> str:
    if cell is None:
        return "–"
    if column == "documents/s":
        return _with_range(cell, digits=1)
    if column.startswith("memory"):
        return mebibytes(cell.middle)
    if column == "failed":
        return f"{cell.middle:.1%}" if cell.middle else "0"
    if math.isinf(cell.middle):
        return f"> {results.any_test.settings['plan']['patience']:g} s"
    return milliseconds(cell.middle)


def _with_range(cell: Cell, digits: int) -> str:
    middle, low, high = (
        f"{value:.{digits}f}" for value in (cell.middle, min(cell.values), max(cell.values))
    )
    return f"{middle} ({low} to {high})" if len(cell.values) > 1 else middle


def _waits(results: Results, load: str) -> str:
    """Waiting by own time under a load, a row for each server."""
    rows = []
    for server in SERVERS:
        row = results.row(server.name, load)
        if row is not None and row.waits:
            cells = (_pair(row.waits.get(end)) for end in BUCKETS)
            rows.append([server.title, *cells])
    if not rows:
        return ""
    head = ["server", *(f"to {end:,}" for end in BUCKETS[:-1]), f"above {BUCKETS[-2]:,}"]
    return f"({LETTERS[load]}), by tokens:\n\n{table(head, rows)}"


def _pair(found: tuple[float, float] | None) -> str:
    if found is None:
        return "–"
    return " / ".join(
        "∞" if math.isinf(value) else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
        for value in found
    )


def _memory(results: Results) -> str:
    columns = ("memory before", "memory", "memory after")
    rows = []
    for server in SERVERS:
        row = results.row(server.name, "behind")
        if row is not None and all(column in row.cells for column in columns):
            cells = (_text(column, row.cells[column], results) for column in columns)
            rows.append([server.title, *cells])
    if not rows:
        return "This comparison did not measure memory before and after the load."
    return table(["server", "before", "peak", "after"], rows)


def _verdict(results: Results) -> str:
    behind = where_behind(results)
    none = "No peer is ahead of Longdoc in any column of (a) to (d), nor with its first answer."
    listed = f"Where a peer is ahead of Longdoc:\n\n{bullets(behind)}" if behind else none
    return f"{listed}\n\nLongdoc's goals:\n\n{bullets(goals(results))}"


def _servers(results: Results) -> str:
    rows = []
    for server in SERVERS:
        tests = [test for test in results.of(server.name) if test.requests]
        start = results.start(server.name)
        if start is None:
            continue
        about = [test.settings for test in tests]
        versions = about[-1]["versions"]
        apart = (
            f"{max((each.get(name, 0.0) for each in about), default=0.0):.1e}"
            for name in ("difference_under_load", "difference_from_limit")
        )
        names = (server.package, "python", "onnxruntime", "tokenizers")
        known = (versions.get(name, "–") for name in names)
        rows.append([server.title, *known, f"{_with_range(start, digits=2)} s", *apart])
    head = ["server", "version", "Python", "ONNX Runtime", "tokenizers", "first answer after",
            "most that scores differ under load", "alone, from no server"]  # fmt: skip
    return table(head, rows)


def _trials(results: Results, server: Server) -> str:
    """What a server did with each of its settings, a column for each load."""
    by_load = {load: results.trials_of(server, load) for load in TITLES}
    if not any(by_load.values()):
        return ""
    chosen = {load: row.settings for load in TITLES if (row := results.row(server.name, load))}
    rows = []
    for settings in server.tried:
        cells = []
        for load, trials in by_load.items():
            found = next((trial.test for trial in trials if trial.settings == settings), None)
            text = "–" if found is None else _trial(found)
            cells.append(f"**{text}**" if chosen.get(load) == settings else text)
        rows.append([_words(settings), *cells])
    head = ["settings", *(f"({letter})" for letter in LETTERS.values())]
    return f"**{server.title}**\n\n{table(head, rows)}\n"


def _not_best(results: Results) -> str:
    """Where a server ran with other settings than did best in its trials."""
    found = []
    for server in SERVERS:
        for load in TITLES:
            row, trials = results.row(server.name, load), results.trials_of(server, load)
            best = best_settings(server, load, results.trials)
            if row is not None and trials and row.settings != best:
                found.append(f"{server.title} in ({LETTERS[load]}): {_words(best)}")
    if not results.trials:
        return "No settings were tried: every server ran with the first of its list."
    if not found:
        return "Every server ran each load with the settings that did best in its trials."
    return (
        "**In this run some servers had better settings than those they ran with**, so ratios to "
        f"their figures flatter Longdoc:\n\n{bullets(found)}"
    )


def _trial(test: Any) -> str:
    if not test.requests:
        return "did not start"
    failed = sum(test.errors.values())
    said = f", {failed} failed" * bool(failed)
    if test.model == "closed":
        return f"{test.answered_per_second:.1f}/s{said}"
    return f"{milliseconds(test.p50 or math.nan)}, {milliseconds(test.p99 or math.nan)}{said}"


def _absent(results: Results) -> list[str]:
    """Servers of the registry that this run did not measure, with the reason."""
    lines = []
    for server in SERVERS:
        tests = results.of(server.name)
        if not any(test.requests for test in tests):
            reason = tests[-1].note if tests else "no part of this comparison"
            lines.append(f"**{server.title}**: {reason.removeprefix(f'{server.title} ')}.")
    return lines


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
    return ", ".join(parts) or "defaults"
