"""A file appears whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from models.files import written_whole


def _write(path: Path, text: str, *, fail: bool) -> None:
    with written_whole(path) as partial:
        partial.write_text(text)
        if fail:
            raise RuntimeError


def test_a_file_is_replaced_whole_or_left_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    _write(path, "first", fail=False)
    with pytest.raises(RuntimeError):
        _write(path, "half", fail=True)
    assert path.read_text() == "first"
    assert [each.name for each in tmp_path.iterdir()] == ["file.txt"]
    _write(path, "second", fail=False)
    assert path.read_text() == "second"
