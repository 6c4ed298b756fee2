"""The reference in the docs is the declarations', and the page's example works."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from longdoc import main
from models.catalogue import as_markdown
from models.mechanisms import ATTENTIONS

PAGE = Path(__file__).parents[2] / "docs" / "attention.md"


def test_the_page_holds_the_reference_as_declared() -> None:
    written = PAGE.read_text(encoding="utf-8").partition("<!-- reference -->\n")[2]
    assert written == as_markdown(list(ATTENTIONS)), (
        "docs/attention.md is out of date: put there what "
        "`longdoc attentions --format markdown` prints"
    )


@pytest.mark.parametrize(
    "code", re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
)
def test_the_page_s_code_runs(code: str) -> None:
    exec(compile(code, str(PAGE), "exec"), {})  # noqa: S102 - our own page


def test_the_command_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["attentions"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in ATTENTIONS.names())
    assert main(["attentions", "--format", "json"]) == 0
    assert [s["name"] for s in json.loads(capsys.readouterr().out)] == list(ATTENTIONS.names())
    assert main(["attentions", "nope"]) == 2
    assert "unknown attention 'nope'" in capsys.readouterr().err
