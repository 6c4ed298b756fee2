"""What can be checked of the Dockerfile without an engine that builds it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
LINES = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()


def test_the_linter_finds_nothing() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run(
        [hadolint, ROOT / "Dockerfile"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_it_copies_only_what_is_there() -> None:
    copied = [line.split()[1:-1] for line in LINES if re.match(r"COPY (?!--from)", line)]
    assert copied
    for names in copied:
        for name in names:
            assert (ROOT / name).exists(), f"{name} is not in the repository"


def test_it_has_both_targets_and_runs_as_nobody_special() -> None:
    stages = [line.split()[-1] for line in LINES if line.startswith("FROM ")]
    assert {"cpu", "cuda"} <= set(stages)
    assert stages[-1] == "cpu"  # what a build without --target gives
    assert "USER 10001" in LINES
    assert any(line.startswith("HEALTHCHECK") for line in LINES)
