"""Which settings serve each peer best: measured under both saturating loads, and kept.

Only settings that batch may win, where a server has batching: that is what its documentation
recommends for throughput. What it does without is measured too, and told.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.load.loops import closed_loop, span
from benchmarks.peers.asking import requests_of, warm_up
from benchmarks.peers.process import StartError, run_server
from benchmarks.peers.registry import OURS, Server, Settings
from benchmarks.peers.workload import Workload
from benchmarks.servers.watch import Watch

KEPT = Path(__file__).parent / "tuning.json"
_LOADS = ("fixed", "mixed")
_TRIES = 2  # of settings during which others kept the machine busy
_QUIET = 0.1  # share of the processors that others may use
LEVEL = 0.02  # a difference below this share is none


def tune(
    servers: Sequence[Server],
    bundle: Path,
    workload: Workload,
    say: Callable[[str], None],
    *,
    anew: bool = False,
) -> None:
    """Measure the settings of the servers named and keep the figures beside the others'.

    All of a server's settings together, since a choice among figures of several machines or days
    is none; or none of them, when all are known for this bundle and not asked for `anew`.
    """
    for server in servers:
        if server.name != OURS and (anew or not _all_known(server, bundle.name)):
            rows = [_measure(server, settings, bundle, workload, say) for settings in server.tried]
            KEPT.write_text(
                json.dumps(read_kept() | {server.name: rows}, indent=1) + "\n", encoding="utf-8"
            )


def _all_known(server: Server, bundle: str) -> bool:
    known = [row["settings"] for row in rows_of(server) if row["bundle"] == bundle]
    return all(dict(settings) in known for settings in server.tried)


def _measure(
    server: Server,
    settings: Settings,
    bundle: Path,
    workload: Workload,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """The row of one server's settings: the quieter of two tries, if others disturbed the first."""
    say(f"{server.title} {json.dumps(dict(settings))}")
    found: dict[str, Any] = {}
    for _ in range(_TRIES):
        last = _try(server, settings, bundle, workload)
        say(f"  {last}")
        found = _quieter(found, last)
        if last.get("others_share", 0.0) < _QUIET:
            break
    return {
        "settings": dict(settings),
        "bundle": bundle.name,
        "documents": workload.plan.documents,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "cores": len(os.sched_getaffinity(0)),
        "found": found,
    }


def _try(server: Server, settings: Settings, bundle: Path, workload: Workload) -> dict[str, Any]:
    """Documents a second under each load, and failures; or why it did not start."""
    found: dict[str, Any] = {}
    try:
        with run_server(server, bundle, settings) as running:
            warm_up(running, workload)
            for name in _LOADS:
                asked = requests_of(server, workload.load(name, 0, {}))
                clients, patience = workload.plan.clients, 4 * workload.plan.patience
                with Watch(running.pid) as watch:
                    exchanges = asyncio.run(closed_loop(running.port, asked, clients, patience))
                others = max(found.get("others_share", 0.0), round(watch.others_share, 3))
                found["others_share"] = others
                answered = [each for each in exchanges if not each.sample.error]
                found[name] = round(len(answered) / span(exchanges), 2)
                found["failed"] = found.get("failed", 0) + len(exchanges) - len(answered)
    except StartError as error:
        found = {"reason": str(error)}
    return found


def _quieter(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """The one of two tries during which others used less of the machine."""
    if not first or "reason" in second:
        return second
    return min(first, second, key=lambda found: float(found.get("others_share", 1.0)))


def rows_of(server: Server) -> list[dict[str, Any]]:
    """What is kept of a server: a row for each of its settings that was measured."""
    tried = [dict(settings) for settings in server.tried]
    return [row for row in read_kept().get(server.name, []) if row["settings"] in tried]


def read_kept() -> dict[str, list[dict[str, Any]]]:
    """The figures of all tunings, by server."""
    kept: dict[str, list[dict[str, Any]]] = (
        json.loads(KEPT.read_text("utf-8")) if KEPT.exists() else {}
    )
    return kept


def best_settings(server: Server) -> Settings:
    """The settings that did best without failures; the first of `tried` before any tuning.

    Of several that are level with the best it is the first that was tried: one round tells no more.
    """
    fit = [row for row in rows_of(server) if _may_win(row)]
    most = max((merit(row["found"]) for row in fit), default=math.inf)
    level = (row["settings"] for row in fit if merit(row["found"]) >= most * (1 - LEVEL))
    return next(level, server.tried[0])


def merit(found: dict[str, Any]) -> float:
    """The geometric mean of documents a second under both loads."""
    return math.sqrt(math.prod(found[name] for name in _LOADS))


def _may_win(row: dict[str, Any]) -> bool:
    batches = row["settings"].get("batch", 2) > 1
    return batches and "reason" not in row["found"] and not row["found"]["failed"]
