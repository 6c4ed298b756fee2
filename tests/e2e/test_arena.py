"""`longdoc arena` as a person runs it, and what it says to mistakes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from longdoc import main


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--tasks", "recal-8"], "unknown task 'recal-8' (did you mean 'recall-8'?); known: reca"),
        (["--budget", "huge"], "unknown budget 'huge'; known: small, paper"),
        (["--attention", "softmx"], "unknown attention 'softmx' (did you mean 'softmax'?)"),
        (["--tasks", "listops-500"], "budget small is too small for listops-500; it has: recall-8"),
        (["--budget", "paper", "--tasks", "text"], "text needs labelled documents: name them with"),
        (["--seeds", "0"], "--seeds must be at least 1; got 0"),
        (["--jobs", "-1"], "--jobs must be at least 1; got -1"),
    ],
)
def test_mistakes_are_told_in_a_sentence(
    options: list[str],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["arena", "--output", str(tmp_path / "a"), *options]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "a").exists()


@pytest.mark.slow
def test_a_killed_arena_goes_on_and_shows_its_table(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "longdoc", "arena", "--tasks", "memory-1", "--seeds", "1"]
    command += ["--attention", "infinite_former", "--output", str(tmp_path), "--jobs", "2"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as first:
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline and not list(tmp_path.glob("states/*.safetensors")):
            time.sleep(0.5)
        first.send_signal(signal.SIGINT)
        assert first.wait(timeout=60) == 130
    assert list(tmp_path.glob("states/*.safetensors")), "no state was stored"
    assert not list(tmp_path.glob("results/*.json"))

    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    assert "2 runs, 0 of them done" in done.stdout
    assert "min left" in done.stdout
    assert "### memory-1, 256 tokens" in done.stdout
    assert (tmp_path / "table.md").read_text(encoding="utf-8") in done.stdout
    assert (tmp_path / "progress.svg").stat().st_size > 1000
    assert not list(tmp_path.glob("states/*.safetensors"))
    results = [json.loads(path.read_text()) for path in tmp_path.glob("results/*.json")]
    assert {r["spec"]["attention"] for r in results} == {
        "infinite_former",
        "infinite_former without memory",
    }
    again = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert "2 runs, 2 of them done" in again.stdout
