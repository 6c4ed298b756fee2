"""Measure every attack: the longest wait for /healthz, memory before, during and after.

    python -m tests.attacks.measure run after.json             this checkout
    python -m tests.attacks.measure run before.json --root …   another one
    python -m tests.attacks.measure table before.json after.json

Each attack meets a service of its own. Figures are only as good as the machine is quiet.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import httpx

from tests.attacks.bodies import BODIES, Body
from tests.attacks.hoarders import HOARDERS
from tests.attacks.target import ROOT, Target, attacked
from tests.support.serving import wait_until

_PATIENCE = 30  # seconds that an attack may take
_AFTER = 5.0  # seconds without work after which memory is looked at again


@dataclass
class Figures:
    """What came of one attack."""

    answer: str = ""
    seconds: float = 0.0
    healthz: float = 0.0  # seconds, the longest
    processor: float = 0.0  # seconds
    memory: list[int] = field(default_factory=list)  # bytes: before, at most, after


def _send(body: Body) -> Callable[[Target], str]:
    content = body.make()

    def send(target: Target) -> str:
        headers = {name.replace("_", "-"): value for name, value in body.headers.items()}
        headers = {"content-type": "application/json", **headers}
        try:
            answer = httpx.post(
                target.url + body.path, content=content, headers=headers, timeout=_PATIENCE
            )
        except httpx.HTTPError as error:
            return f"none: {type(error).__name__}"
        return str(answer.status_code)

    return send


def _attacks() -> dict[str, Callable[[], Callable[[Target], object]]]:
    sending = {name: (lambda body=body: _send(body)) for name, body in BODIES.items()}
    hoarding = {name: (lambda call=call: call) for name, (call, _) in HOARDERS.items()}
    return {**sending, **hoarding}


def _measure(attack: Callable[[Target], object], root: Path) -> Figures:
    figures = Figures()
    with attacked(root=root, timeout_ms="5000") as target:
        assert target.serves()
        figures.memory.append(target.resident())
        taken = target.processor_seconds()
        with target.most_memory() as most, target.watched() as watched:
            begin = time.monotonic()
            figures.answer = str(attack(target))
            figures.seconds = time.monotonic() - begin
        figures.healthz = watched.longest
        figures.processor = target.processor_seconds() - taken
        wait_until(lambda: target.metrics()["longdoc_queue_depth"] == 0, 60)
        time.sleep(_AFTER)
        figures.memory += [most[0], target.resident()]
    return figures


def run(path: Path, root: Path, chosen: list[str]) -> None:
    """Measure the attacks that are not in the file yet, and add them to it."""
    found = json.loads(path.read_text()) if path.exists() else {}
    for name, make in _attacks().items():
        if name in found or (chosen and name not in chosen):
            continue
        try:
            figures = _measure(make(), root)
        except Exception as error:  # a service that does not come back is a figure as well
            figures = Figures(answer=f"{type(error).__name__}: {error}"[:200])
        found[name] = asdict(figures)
        path.write_text(json.dumps(found, indent=1))
        print(f"{name}: {figures}", flush=True)


def table(before: Path, after: Path) -> str:
    """Both measurements as Markdown."""
    rows = ["| attack | /healthz at most | memory: before, at most, after |", "|---|---|---|"]
    old, new = json.loads(before.read_text()), json.loads(after.read_text())
    for name in new:
        waits = " → ".join(_wait(each.get(name)) for each in (old, new))
        memories = " → ".join(_memory(each.get(name)) for each in (old, new))
        rows.append(f"| {name} | {waits} | {memories} |")
    return "\n".join(rows)


def _wait(figures: dict[str, float] | None) -> str:
    if not figures or not figures["healthz"]:
        return "no answer"
    return f"{figures['healthz'] * 1000:,.0f} ms"


def _memory(figures: dict[str, list[int]] | None) -> str:
    if not figures or not figures["memory"]:
        return "–"
    return ", ".join(f"{each >> 20:,}" for each in figures["memory"]) + " MiB"


def main() -> None:
    """Measure or print."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run")
    running.add_argument("path", type=Path)
    running.add_argument("--root", type=Path, default=ROOT)
    running.add_argument("--only", nargs="*", default=[])
    printing = commands.add_parser("table")
    printing.add_argument("before", type=Path)
    printing.add_argument("after", type=Path)
    args = parser.parse_args()
    if args.command == "run":
        run(args.path, args.root, args.only)
    else:
        print(table(args.before, args.after))


if __name__ == "__main__":
    main()
