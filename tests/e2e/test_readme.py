"""The README tells the truth: its commands work when pasted, and answer as it says."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


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


def rounded(value: Any) -> Any:
    """With two decimals: engines on other processors differ in the last digits."""
    if isinstance(value, dict):
        return {name: rounded(part) for name, part in value.items()}
    if isinstance(value, list):
        return [rounded(part) for part in value]
    return round(value, 2) if isinstance(value, float) else value


def test_the_first_request_gets_the_answer_shown(address: str) -> None:
    code = re.search(r"^```\n(curl .*?)^```$", README, re.MULTILINE | re.DOTALL)
    shown = re.search(r"^```json\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    assert code is not None
    assert shown is not None
    command = code[1].replace("http://127.0.0.1:8000", address)
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, timeout=60, check=True
    )
    answer = json.loads(done.stdout)
    assert {"id", "timings_ms"} <= set(answer)
    del answer["id"], answer["timings_ms"]
    assert rounded(answer) == rounded(json.loads(shown[1]))


@pytest.mark.parametrize("target", re.findall(r"^make (\S+)", README, re.MULTILINE))
def test_make_knows_the_commands(target: str) -> None:
    subprocess.run(["make", "--dry-run", target], cwd=ROOT, check=True, capture_output=True)


def test_links_lead_somewhere() -> None:
    for link in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / link).exists(), link
