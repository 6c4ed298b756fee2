"""Resident memory of one ONNX session over runs of random lengths: does it keep growing?

    python -m benchmarks.engine.memory_growth BUNDLE [--runs 2000] [--settled 200] [--longest 16384]

Lengths are spread evenly over their logarithm, one run after the other: with several at once, what
is held depends on which of them happen to meet. Exits with 1 when memory after all runs is more
than a tenth above what it was after the first `settled`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import psutil

from models.bundle import load_bundle
from service.engines import open_engine

ALLOWED = 1.10


def measure(bundle_path: Path, *, runs: int, settled: int, longest: int) -> list[int]:
    """Resident bytes after every `settled` runs."""
    bundle = load_bundle(bundle_path)
    manifest = bundle.manifest
    engine = open_engine(bundle, engine="onnxruntime", device="cpu", threads=1)
    random = np.random.default_rng(0)
    highest = np.log(min(longest, manifest.max_tokens))
    lengths = np.exp(random.uniform(0, highest, runs)).astype(int)

    resident = []
    for number, length in enumerate(lengths.tolist(), start=1):
        engine.run(np.arange(length)[None] % manifest.config.vocab_size, np.array([length]))
        if number % settled == 0:
            resident.append(psutil.Process().memory_info().rss)
    return resident


def main() -> int:
    """Print the samples as JSON and judge them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--settled", type=int, default=200)
    parser.add_argument("--longest", type=int, default=16384)
    args = parser.parse_args()
    resident = measure(args.bundle, runs=args.runs, settled=args.settled, longest=args.longest)
    growth = resident[-1] / resident[0]
    print(json.dumps({"resident_bytes": resident, "growth": round(growth, 4)}))
    return 0 if growth <= ALLOWED else 1


if __name__ == "__main__":
    raise SystemExit(main())
