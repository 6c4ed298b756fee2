"""CPU seconds from nothing to a ready ONNX session, for every bundle: imports, checks, opening.

    python -m benchmarks.engine.cold_start [BUNDLE …]

Each start is a process of its own; the table shows the median of several.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

from models.bundle import find_bundles

ROUNDS = 5
_START = """
import json, sys, time
import numpy as np
from models.bundle import load_bundle
from service.engines import open_engine
import onnxruntime
imported = time.process_time()
bundle = load_bundle(sys.argv[1])
checked = time.process_time()
engine = open_engine(bundle, engine="onnxruntime", device="cpu", threads=1)
opened = time.process_time()
engine.run(np.array([[0]]), np.array([1]))
ready = time.process_time()
print(json.dumps({"import": imported, "check": checked - imported, "open": opened - checked,
                  "first run": ready - opened, "total": ready}))
"""


def measure(bundle: Path) -> dict[str, float]:
    """Median CPU seconds of each step; the first start, which fills the disk cache, is dropped."""
    starts = []
    for _ in range(ROUNDS + 1):
        done = subprocess.run(  # noqa: S603 - our own script
            [sys.executable, "-c", _START, str(bundle)], check=True, capture_output=True
        )
        starts.append(json.loads(done.stdout))
    return {step: statistics.median(start[step] for start in starts[1:]) for step in starts[0]}


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundles", nargs="*", type=Path, default=find_bundles())
    print(f"{'bundle':28}{'import':>9}{'check':>9}{'open':>9}{'first run':>11}{'total':>9}")
    for bundle in parser.parse_args().bundles:
        found = measure(bundle)
        print(
            f"{bundle.name:28}{found['import']:9.3f}{found['check']:9.3f}{found['open']:9.3f}"
            f"{found['first run']:11.3f}{found['total']:9.3f}"
        )


if __name__ == "__main__":
    main()
