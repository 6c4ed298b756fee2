"""What the docs tell their reader to type works, in order, and prints what they show."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts import reference
from scripts.docs_commands import blocks_of, difference, run_page, unmarked
from tests.support.serving import Served, serving

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md")])
#: Pages with commands to run; those of the API guide run one by one, below.
RUN = [
    page.relative_to(DOCS).as_posix()
    for page in sorted(DOCS.rglob("*.md"))
    if page.name != "api.md"
    and any(block.is_run for block in blocks_of(page.read_text(encoding="utf-8")))
]
SNIPPETS = [
    (block.language, block.code)
    for block in blocks_of((DOCS / "api.md").read_text(encoding="utf-8"))
]


def test_quick_start_and_training_are_run() -> None:
    assert {"quick-start.md", "training.md"} <= set(RUN)


@pytest.mark.parametrize("name", RUN)
def test_a_page_s_commands_run_in_order_from_an_empty_folder(name: str) -> None:
    outcome = run_page(DOCS / name)
    assert not outcome.faults, "\n".join(outcome.faults)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_say_what_they_are_and_why_they_are_not_run(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert unmarked(text) == [], "fence commands as sh, so that they are run"
    for block in blocks_of(text):
        if block.mark.startswith("not run"):
            assert re.match(r"not run, \w+", block.mark), f"{page.name}:{block.line}: why?"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_the_pages_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#:]+?)(?:#[^)]*)?\)", text):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_page_can_be_found_from_the_first() -> None:
    seen: set[Path] = set()
    left = [DOCS / "README.md"]
    while left:
        page = left.pop().resolve()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        text = page.read_text(encoding="utf-8")
        left += [page.parent / t for t in re.findall(r"\]\(([^)#:]+\.md)", text)]
    assert {page.resolve() for page in DOCS.rglob("*.md")} <= seen


def test_every_route_metric_and_error_is_documented() -> None:
    page = (DOCS / "reference.md").read_text(encoding="utf-8")
    assert page == reference.page(), "run `python -m scripts.reference`"


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


@pytest.mark.parametrize(
    ("language", "shown", "printed", "differs"),
    [
        ("json", '{"a": 0.99}', '{"a": 0.992, "b": 1}', False),
        ("json", '{"a": 0.99}', '{"a": 0.9}', True),
        ("json", '{"a": [{"b": "c"}]}', '{"a": [{"b": "d"}]}', True),
        ("json", '{"a": 1}', '{"b": 1}', True),
        ("text", "one … three", "zero\none two\nthree", False),
        ("text", "one … two …", "one   two\n", False),
        ("text", "one … four", "one two three", True),
    ],
)
def test_outputs_are_compared(language: str, shown: str, printed: str, differs: bool) -> None:
    assert bool(difference(language, shown, printed)) is differs
