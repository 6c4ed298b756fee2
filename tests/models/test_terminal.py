"""Text of strangers on its way to a terminal."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longdoc import main
from models.errors import BundleError
from models.terminal import is_printable, printable
from tests.support.crafted_bundle import craft


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J", "\\x1b[2J"),
        ("a\x9b31mb", "a\\x9b31mb"),
        ("bell\x07", "bell\\x07"),
        ("two\nlines", "two\\x0alines"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\ud800", "\\ud800"),
        ("naïve 한국어 👩\u200d🔬 می\u200cخواهم", "naïve 한국어 👩\u200d🔬 می\u200cخواهم"),
    ],
)
def test_what_a_terminal_would_act_on_is_written_out(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert is_printable(text) == (text == shown)


@given(st.text())
def test_nothing_that_acts_is_left(text: str) -> None:
    assert is_printable(printable(text))
    assert printable(printable(text)) == printable(text)


def test_an_error_shows_no_escape_code() -> None:
    assert str(BundleError("no \x1b[31mfile\x1b[0m\nsecond line")) == (
        "no \\x1b[31mfile\\x1b[0m\nsecond line"
    )


def test_a_folder_with_an_escape_code_for_a_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = craft(tmp_path / "bundles" / "good")
    shutil.copytree(folder, tmp_path / "bundles" / "\x1b[2Jbad")
    (tmp_path / "bundles" / "\x1b[2Jbad" / "card.md").unlink()
    assert main(["bundles", "--root", str(tmp_path / "bundles")]) == 1
    printed = capsys.readouterr()
    assert "\\x1b[2Jbad" in printed.out
    assert "\x1b" not in printed.out + printed.err
    assert main(["classify", "--bundle", str(tmp_path / "bundles" / "\x1b[2Jbad"), "-"]) == 2
    assert "\x1b" not in capsys.readouterr().err
