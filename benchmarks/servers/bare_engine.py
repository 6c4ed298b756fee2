"""The graph without a server: what the machine can do, measured in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.documents.making import Document
from benchmarks.servers.bundle import write_plain_bundle
from benchmarks.servers.process import ROOT, measured_python


@dataclass(frozen=True)
class Bare:
    """Seconds for all documents together and for each, and each document's scores by label."""

    seconds: float
    each: tuple[float, ...]
    scores: tuple[dict[str, float], ...]


def measure_bare(
    bundle: Path,
    documents: Mapping[str, Sequence[Document]],
    *,
    tokenized: bool = False,
    batched: bool = False,
) -> dict[str, Bare]:
    """Classify each list on one single-threaded session per core, longest documents first.

    `tokenized`: the clock starts when texts are tokens already. `batched`: short documents of
    about the same length share a run.
    """
    wanted = {
        "tokenized": tokenized,
        "batched": batched,
        "texts": {name: [each.text for each in some] for name, some in documents.items()},
    }
    with tempfile.TemporaryDirectory(prefix="bare-") as folder:
        plain = write_plain_bundle(bundle, Path(folder))
        variables = {"PEER_BUNDLE": str(plain), "PYTHONPATH": str(ROOT)}
        done = subprocess.run(  # noqa: S603 - our own
            [measured_python(), "-m", "benchmarks.peers.servers.bare"],
            input=json.dumps(wanted).encode(),
            env=os.environ | variables,
            stdout=subprocess.PIPE,
            check=True,
        )
    return {
        name: Bare(found["seconds"], tuple(found["each"]), tuple(found["scores"]))
        for name, found in json.loads(done.stdout).items()
    }
