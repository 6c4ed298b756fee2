"""What the machine can do without a server: measured in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.documents.making import Document
from benchmarks.peers.registry import ROOT, Scores


@dataclass(frozen=True)
class Bare:
    """Seconds for all documents of a load, and the scores of each."""

    seconds: float
    scores: tuple[Scores, ...]


def measure_limit(bundle: Path, documents: Mapping[str, Sequence[Document]]) -> dict[str, Bare]:
    """No HTTP, one session of one thread per core, longest first; by load."""
    texts = {name: [each.text for each in some] for name, some in documents.items()}
    variables = {"PEER_BUNDLE": str(bundle.resolve()), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.peers.servers.bare"],
        input=json.dumps(texts).encode(),
        env=os.environ | variables,
        stdout=subprocess.PIPE,
        check=True,
    )
    found = json.loads(done.stdout)
    return {name: Bare(each["seconds"], tuple(each["scores"])) for name, each in found.items()}
