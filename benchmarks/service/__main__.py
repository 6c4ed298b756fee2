"""`python -m benchmarks.service MEASURE… [--full] --out FILE`, and `… report FILE`."""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.service.measures import MEASURES
from benchmarks.service.plans import FULL, QUICK
from benchmarks.service.report import markdown
from models.bundle import ROOT, load_bundle
from service.scheduling.cores import usable_cores

PAGE = Path(__file__).parent.parent.parent / "docs" / "serving-figures.md"


def main() -> int:
    """Measure and store, or turn a stored result into the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.service", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("all", *MEASURES):
        command = commands.add_parser(name)
        command.add_argument("--bundle", type=Path, default=ROOT / "elife-nystromformer")
        command.add_argument("--full", action="store_true", help="the figures; else a quick look")
        command.add_argument("--out", type=Path, required=True)
    report = commands.add_parser("report", help=f"write {PAGE.name}")
    report.add_argument("result", type=Path)
    args = parser.parse_args()
    if args.command == "report":
        PAGE.write_text(markdown(json.loads(args.result.read_text())), encoding="utf-8")
        return 0
    names = list(MEASURES) if args.command == "all" else [args.command]
    result = _load(args.out) | _head(args.bundle, args.full, args.out)
    for name in names:
        print(f"{name} …", file=sys.stderr, flush=True)
        figures = MEASURES[name](args.bundle, FULL if args.full else QUICK)
        result["measures"][name] = figures
        args.out.write_text(json.dumps(result) + "\n")
        print(f"{name}: {json.dumps(_shown(figures))}", file=sys.stderr, flush=True)
    return 0


def _shown(figures: dict[str, Any]) -> dict[str, Any]:
    """The figures without what they were computed from."""
    return {
        name: _shown(value) if isinstance(value, dict) and name != "ratios" else value
        for name, value in figures.items()
        if name in ("ratios", "seconds") or not isinstance(value, list)
    }


def _load(path: Path) -> dict[str, Any]:
    """An earlier result, whose other measures are kept."""
    earlier: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"measures": {}}
    return earlier


def _head(bundle: Path, full: bool, out: Path) -> dict[str, Any]:
    manifest = load_bundle(bundle).manifest
    return {
        "bundle": manifest.name,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "file": out.name,
        "plan_name": "full" if full else "quick",
        "plan": asdict(FULL if full else QUICK),
        "environment": {
            "cpu": _cpu(),
            "cores": usable_cores(),
            "system": platform.platform(),
            "python": platform.python_version(),
            "onnxruntime": version("onnxruntime"),
            "fastapi": version("fastapi"),
            "uvicorn": version("uvicorn"),
            "tokenizers": version("tokenizers"),
        },
    }


def _cpu() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


if __name__ == "__main__":
    sys.exit(main())
