"""Rows of JSON Lines and Parquet files, read a little at a time whatever their size."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from models.errors import ConfigError, LongdocError
from models.extras import require

JSON_SUFFIXES = (".jsonl", ".ndjson")
PARQUET_SUFFIX = ".parquet"
MOST_TEXT = 64 << 20  # bytes of one document
_PARQUET_ROWS = 16  # rows decoded at a time
_BUFFER = 1 << 20  # bytes of a Parquet column chunk that are held
_FINGERPRINT = 1 << 20  # bytes at either end of a file that tell it from others


class SourceError(LongdocError):
    """A file that cannot be read any further."""


@dataclass(frozen=True)
class Row:
    """A document, or what is wrong with its row; `position` counts bytes of all files."""

    id: Any
    text: str
    error: str | None
    position: int


def is_rows(path: Path) -> bool:
    """Whether a file holds a document a row."""
    return path.suffix.lower() in (*JSON_SUFFIXES, PARQUET_SUFFIX)


RESULTS = ("label", "score", "scores", "tokens", "evidence", "error")  # names of the output
ROW_NUMBER = "row"


@dataclass(frozen=True)
class Source:
    """Files of rows, read one after the other."""

    paths: Sequence[Path]
    text: str = "text"
    id: str | None = None  # None: the rows' numbers
    size: int = field(init=False)  # bytes

    def __post_init__(self) -> None:
        if self.id in RESULTS:
            raise ConfigError(f"--id {self.id} is the name of a result; rename that column")
        object.__setattr__(self, "size", sum(path.stat().st_size for path in self.paths))
        for path in self.paths:
            reader = _parquet_columns if _is_parquet(path) else _json_columns
            columns = reader(path)
            for option, name in (("--text", self.text), ("--id", self.id)):
                if name is not None and name not in columns:
                    raise ConfigError(
                        f"{path} has no column {name!r}; name one of {', '.join(columns)} "
                        f"with {option}"
                    )

    @property
    def id_name(self) -> str:
        """The column of the output that says which row a result is of."""
        return self.id or ROW_NUMBER

    def rows(self, skip: int = 0) -> Iterator[Row]:
        """All rows but the first `skip`; SourceError where a file cannot be read."""
        before, number = 0, 0
        for path in self.paths:
            read = _parquet_rows if _is_parquet(path) else _json_rows
            for columns, error, position in read(path, self, max(0, skip - number)):
                number += 1
                if number > skip:
                    yield self.row(number, columns, error, before + position)
            before += path.stat().st_size

    def fingerprint(self) -> list[dict[str, Any]]:
        """What tells these files from others."""
        return [
            {"path": str(path.resolve()), "bytes": path.stat().st_size, "sha256": _ends(path)}
            for path in self.paths
        ]

    def has_integer_ids(self) -> bool:
        """Whether every id is a whole number of the same column type."""
        if self.id is None:
            return True
        return all(_is_parquet(path) and _is_integer(path, self.id) for path in self.paths)

    def row(self, number: int, columns: Any, error: str | None, position: int) -> Row:
        """A row from its columns, or with what is wrong with it."""
        if error is None and not isinstance(columns, dict):
            error = "the row is not a JSON object"
        if error is not None:
            return Row(number if self.id is None else None, "", error, position)
        name = number if self.id is None else columns.get(self.id)
        text = columns.get(self.text)
        if not isinstance(text, str):
            error = f"column {self.text!r} holds no text"
        elif len(text) > MOST_TEXT:
            error = f"the text is longer than {MOST_TEXT} characters"
        return Row(name, text if error is None else "", error, position)


def _is_parquet(path: Path) -> bool:
    return path.suffix.lower() == PARQUET_SUFFIX


def _ends(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        digest.update(file.read(_FINGERPRINT))
        file.seek(-min(_FINGERPRINT, path.stat().st_size), os.SEEK_END)
        digest.update(file.read(_FINGERPRINT))
    return digest.hexdigest()


def _json_columns(path: Path) -> list[str]:
    with path.open("rb") as file:
        first = _json_row(file.readline(MOST_TEXT))
    if not isinstance(first, dict):
        raise ConfigError(f"{path}: the first line is not a JSON object with a column a field")
    return list(first)


def _json_rows(path: Path, source: Source, skip: int) -> Iterator[tuple[Any, str | None, int]]:
    """Each line as (columns, error, position); lines to skip are not parsed."""
    del source
    number = 0
    try:
        with path.open("rb") as file:
            while line := file.readline(MOST_TEXT + 1):
                whole = line.endswith(b"\n") or len(line) <= MOST_TEXT
                if not whole:
                    _skip_line(file)
                if whole and not line.strip():
                    continue
                number += 1
                if number <= skip:
                    yield {}, None, file.tell()
                elif whole:
                    columns = _json_row(line)
                    error = "the line is not JSON in UTF-8" if columns is None else None
                    yield columns, error, file.tell()
                else:
                    yield None, f"the line is longer than {MOST_TEXT} bytes", file.tell()
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror}") from None


def _skip_line(file: BinaryIO) -> None:
    while part := file.readline(MOST_TEXT):
        if part.endswith(b"\n"):
            return


def _json_row(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _parquet_columns(path: Path) -> list[str]:
    with _open_parquet(path) as file:
        return list(file.schema_arrow.names)


def _is_integer(path: Path, column: str) -> bool:
    import pyarrow as pa  # noqa: PLC0415 - an extra

    with _open_parquet(path) as file:
        return bool(pa.types.is_integer(file.schema_arrow.field(column).type))


def _parquet_rows(path: Path, source: Source, skip: int) -> Iterator[tuple[Any, str | None, int]]:
    import pyarrow as pa  # noqa: PLC0415 - an extra

    wanted = [name for name in (source.text, source.id) if name is not None]
    size, number = path.stat().st_size, 0
    with _open_parquet(path) as file:
        total = max(1, file.metadata.num_rows)
        for group in range(file.num_row_groups):
            rows = file.metadata.row_group(group).num_rows
            if number + rows <= skip:  # nothing of it is needed
                for _ in range(rows):
                    number += 1
                    yield {}, None, size * number // total
                continue
            try:
                batches = file.iter_batches(_PARQUET_ROWS, row_groups=[group], columns=wanted)
                for batch in batches:
                    for columns in batch.to_pylist():
                        number += 1
                        yield columns, None, size * number // total
            except (pa.ArrowException, OSError) as error:
                raise SourceError(
                    f"{path} is damaged after row {number}: {_one_line(error)}"
                ) from None


def _open_parquet(path: Path) -> Any:
    require("parquet", "Parquet")
    import pyarrow as pa  # noqa: PLC0415 - an extra
    import pyarrow.parquet as pq  # noqa: PLC0415

    try:
        return pq.ParquetFile(path, buffer_size=_BUFFER, pre_buffer=False)
    except (pa.ArrowException, OSError) as error:
        raise SourceError(f"{path} is not a Parquet file, or damaged: {_one_line(error)}") from None


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
