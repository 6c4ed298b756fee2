"""Rows as they come out of JSON Lines and Parquet files, good ones and bad ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from models.errors import ConfigError
from service.bulk import source as module
from service.bulk.source import Source, SourceError

ROWS: list[dict[str, Any]] = [
    {"text": f"text {n}", "key": n * 7, "other": "x"} for n in range(1, 101)
]


def _jsonl(path: Path, rows: list[dict[str, Any]] = ROWS) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def _parquet(path: Path, rows: list[dict[str, Any]] = ROWS) -> Path:
    pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=17)
    return path


MAKERS = [("rows.jsonl", _jsonl), ("rows.parquet", _parquet)]


@pytest.mark.parametrize(("name", "make"), MAKERS)
@pytest.mark.parametrize("skip", [0, 1, 16, 17, 18, 99, 100, 150])
def test_rows_come_in_order_from_where_they_are_wanted(
    tmp_path: Path, name: str, make: Any, skip: int
) -> None:
    rows = list(Source([make(tmp_path / name)], id="key").rows(skip))
    assert [(row.id, row.text) for row in rows] == [(r["key"], r["text"]) for r in ROWS[skip:]]
    assert all(row.error is None for row in rows)


def test_files_follow_one_another_and_positions_count_all_bytes(tmp_path: Path) -> None:
    source = Source([_jsonl(tmp_path / "a.jsonl"), _parquet(tmp_path / "b.parquet")])
    rows = list(source.rows())
    assert [row.id for row in rows] == list(range(1, 201))
    positions = [row.position for row in rows]
    assert positions == sorted(positions)
    assert positions[-1] == source.size
    assert [row.id for row in source.rows(skip=150)] == list(range(151, 201))


def test_a_bad_row_is_a_row_with_an_error(tmp_path: Path) -> None:
    lines = [
        b'{"text": "good", "id": "a"}',
        b"not JSON",
        b'{"text": 3, "id": "b"}',
        b'{"id": "c"}',
        b'["a list"]',
        b'{"text": "\xff"}',
        b"",
        b"[" * 100_000,
        b'{"text": "good again", "id": "d"}',
    ]
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"\n".join(lines))
    rows = list(Source([path], id="id").rows())
    assert [row.error is None for row in rows] == [True, *[False] * 6, True]
    assert [row.id for row in rows if row.id] == ["a", "b", "c", "d"]
    assert "holds no text" in (rows[2].error or "")


def test_a_line_that_is_too_long_is_never_held_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_TEXT", 100)
    path = tmp_path / "rows.jsonl"
    path.write_text('{"text": "a"}\n{"text": "%s"}\n{"text": "b"}\n' % ("x" * 1000))
    rows = list(Source([path]).rows())
    assert [row.text for row in rows] == ["a", "", "b"]
    assert "longer than 100" in (rows[1].error or "")


def test_a_null_is_no_text(tmp_path: Path) -> None:
    path = _parquet(tmp_path / "rows.parquet", [{"text": "a"}, {"text": None}])
    assert [row.error is None for row in Source([path]).rows()] == [True, False]


@pytest.mark.parametrize(("name", "make"), MAKERS)
def test_a_column_that_is_not_there_is_named_with_those_that_are(
    tmp_path: Path, name: str, make: Any
) -> None:
    path = make(tmp_path / name)
    with pytest.raises(ConfigError, match=r"'body'.*text, key, other.*--text"):
        Source([path], text="body")
    with pytest.raises(ConfigError, match=r"'uuid'.*--id"):
        Source([path], id="uuid")


@pytest.mark.parametrize("content", [b"", b"[1, 2]\n", b"title,text\n"])
def test_a_file_that_holds_no_objects(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="not a JSON object"):
        Source([path])


def test_a_file_that_is_no_parquet(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    path.write_bytes(b"PAR1 and nothing else")
    with pytest.raises(SourceError, match=r"not a Parquet file, or damaged"):
        Source([path])


def test_a_damaged_parquet_file_gives_the_rows_before_the_damage(tmp_path: Path) -> None:
    rows = [{"text": f"{n} " * 50} for n in range(100)]
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=20, compression="zstd")
    start = pq.ParquetFile(path).metadata.row_group(3).column(0).data_page_offset
    content = bytearray(path.read_bytes())
    content[start + 10 : start + 60] = b"\xff" * 50
    path.write_bytes(content)
    rows_before = Source([path]).rows()
    read = [next(rows_before).id for _ in range(60)]
    assert read == list(range(1, 61))
    with pytest.raises(SourceError, match="damaged after row 60"):
        next(rows_before)


def test_other_content_has_another_fingerprint(tmp_path: Path) -> None:
    path = _jsonl(tmp_path / "rows.jsonl")
    before = Source([path]).fingerprint()
    assert Source([path]).fingerprint() == before
    path.write_text(path.read_text().replace("text 100", "text 999"))
    assert Source([path]).fingerprint() != before


def test_ids_that_are_whole_numbers_stay_such(tmp_path: Path) -> None:
    parquet, lines = _parquet(tmp_path / "a.parquet"), _jsonl(tmp_path / "b.jsonl")
    assert Source([parquet], id="key").has_integer_ids()
    assert not Source([parquet], id="other").has_integer_ids()
    assert not Source([lines], id="key").has_integer_ids()
    assert Source([lines]).has_integer_ids()
