"""The commands and snippets of the API guide work when pasted."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.serving import Served, serving

DOCS = Path(__file__).parent.parent.parent / "docs"
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SNIPPETS = BLOCK.findall((DOCS / "api.md").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving() as running:
        yield running


def test_there_are_snippets_of_both_kinds() -> None:
    assert {language for language, _ in SNIPPETS} == {"sh", "python"}


@pytest.mark.parametrize(("language", "code"), SNIPPETS)
def test_snippet(served: Served, language: str, code: str, tmp_path: Path) -> None:
    code = code.replace("http://127.0.0.1:8000", served.url)
    if language == "sh":
        code = code.replace("curl -s", "curl -sS --fail-with-body")
        command = ["bash", "-euo", "pipefail", "-c", code]
    else:
        command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, shlex.join(command) + done.stdout + done.stderr
    assert done.stdout.strip()


def test_links_between_the_pages_lead_somewhere() -> None:
    for page in ("quick-start", "api", "configuration", "deployment", "tuning", "troubleshooting"):
        text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)#:]+\.md)\)", text):
            assert (DOCS / target).exists(), f"{page}.md links to {target}"
