"""The README's commands work when pasted and answer as shown; its figures are those stored."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.docs_commands import blocks_of, difference
from scripts.readme_figures import table

ROOT = Path(__file__).parent.parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = blocks_of(README)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """What `make serve` serves, on another port."""
    process = subprocess.Popen(
        [sys.executable, "-m", "longdoc", "serve", "--port", "0", "--log-level", "warning"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        ready = re.search(r"http://[0-9.:]+", process.stdout.readline())
        assert ready is not None
        yield ready[0]
    finally:
        process.terminate()
        process.stdout.close()
        assert process.wait(30) == 0


def test_two_commands_lead_to_an_answer() -> None:
    assert [block.code.split()[0] for block in BLOCKS] == ["make", "curl"]
    subprocess.run(["make", "--dry-run", "serve"], cwd=ROOT, check=True, capture_output=True)


def test_the_first_request_gets_the_answer_shown(address: str) -> None:
    request = BLOCKS[1]
    assert request.shown is not None
    done = subprocess.run(
        ["bash", "-c", request.code.replace("http://127.0.0.1:8000", address)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert not difference(*request.shown, done.stdout)


def test_the_figures_are_those_that_are_stored() -> None:
    assert table() in README, "run `python -m scripts.readme_figures`"
