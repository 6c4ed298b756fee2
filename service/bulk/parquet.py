"""Results as Parquet: one row a document, in columns that any reader understands."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_GROUP = 8192  # rows of a row group


def schema(id_field: pa.Field) -> pa.Schema:
    """The columns: the rows' own ids, then their results."""
    score = pa.struct([("label", pa.string()), ("score", pa.float32())])
    passage = pa.struct(
        [
            ("start", pa.int64()),
            ("end", pa.int64()),
            ("text", pa.string()),
            ("weight", pa.float32()),
        ]
    )
    return pa.schema(
        [
            id_field,
            ("label", pa.string()),
            ("score", pa.float32()),
            ("scores", pa.list_(score)),
            ("tokens", pa.int64()),
            ("tokens_used", pa.int64()),
            ("windows", pa.int32()),
            ("truncated", pa.bool_()),
            ("evidence", pa.list_(passage)),
            ("error", pa.string()),
        ]
    )


def to_table(records: Sequence[dict[str, Any]], id_field: pa.Field) -> pa.Table:
    """Results as a table."""
    rows = [_columns(record, id_field) for record in records]
    return pa.Table.from_pylist(rows, schema=schema(id_field))


def _columns(record: dict[str, Any], id_field: pa.Field) -> dict[str, Any]:
    name = record.get(id_field.name)
    if pa.types.is_string(id_field.type) and name is not None:
        name = str(name)  # JSON's ids may be of any kind
    tokens = record.get("tokens", {})
    return {
        id_field.name: name,
        "label": record.get("label"),
        "score": record.get("score"),
        "scores": record.get("scores"),
        "tokens": tokens.get("total"),
        "tokens_used": tokens.get("used"),
        "windows": tokens.get("windows"),
        "truncated": tokens.get("truncated"),
        "evidence": record.get("evidence"),
        "error": record.get("error"),
    }


def write_parquet(records: Iterable[dict[str, Any]], path: Path, id_field: pa.Field) -> None:
    """Write results, a row group at a time."""
    with pq.ParquetWriter(path, schema(id_field)) as writer:
        for group in _groups(records):
            writer.write_table(to_table(group, id_field))


def _groups(records: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    remaining = iter(records)
    while group := list(itertools.islice(remaining, _GROUP)):
        yield group
