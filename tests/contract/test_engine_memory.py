"""Memory of a session does not keep growing with every new length."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from models.bundle import find_bundles, load_bundle

#: The mechanisms with the largest scratch memory stand for the rest.
HUNGRY = ("nystromformer", "longformer")
BUNDLES = [
    pytest.param(path, id=path.name)
    for path in find_bundles()
    if load_bundle(path).manifest.config.attention in HUNGRY
]


@pytest.mark.parametrize("bundle", BUNDLES)
def test_memory_settles(bundle: Path) -> None:
    """A tenth of the runs that `python -m benchmarks.engine.memory_growth` does."""
    command = [sys.executable, "-m", "benchmarks.engine.memory_growth", str(bundle)]
    options = ["--runs", "240", "--settled", "80", "--longest", "8192"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(json.loads(done.stdout)["resident_bytes"]) == 3
