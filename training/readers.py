"""Reads labelled rows from JSONL, CSV, TSV and Parquet files, folders, and hub data sets."""

from __future__ import annotations

import csv
import importlib
import io
import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from training.archives import is_compressed, open_data, plain_suffix
from training.data_options import HUB
from training.errors import DataError

#: Longest row in bytes. The service takes no longer document either.
MAX_ROW_BYTES = 8 << 20

#: A place to name in messages, and the row's columns.
Row = tuple[str, Mapping[str, Any]]

SPLIT_NAMES = {
    "train": "train",
    "training": "train",
    "valid": "valid",
    "validation": "valid",
    "val": "valid",
    "dev": "valid",
    "test": "test",
}


def read_rows(source: str) -> Iterator[Row]:
    """The rows of a file, of a folder with a subfolder per class, or of `hf:NAME`."""
    if source.startswith(HUB):
        return _hub_rows(source.removeprefix(HUB))
    path = Path(source)
    if path.is_dir():
        return _folder_rows(path)
    if not path.is_file():
        raise DataError(
            f"{source} is neither a file nor a folder; for a data set of the Hugging Face hub "
            f"write {HUB}{source}"
        )
    readers = {
        ".jsonl": _json_rows,
        ".ndjson": _json_rows,
        ".csv": _csv_rows,
        ".tsv": _tsv_rows,
        ".parquet": _parquet_rows,
    }
    suffix = plain_suffix(path)
    if suffix not in readers:
        raise DataError(
            f"{source} is of no known format ({suffix or 'no suffix'}); known: "
            f"{', '.join(readers)}, each also .gz, .xz or .zst"
        )
    return _read_file(path, readers[suffix])


def _read_file(path: Path, reader: Any) -> Iterator[Row]:
    empty = True
    with open_data(path) as stream:
        for row in reader(path, stream):
            empty = False
            yield row
    if empty:
        raise DataError(f"{path} is empty: it holds no row")


def _json_rows(path: Path, stream: BinaryIO) -> Iterator[Row]:
    number = 0
    while line := stream.readline(MAX_ROW_BYTES + 1):
        number += 1
        where = f"{path.name} row {number}"
        if len(line) > MAX_ROW_BYTES:
            raise DataError(f"{where} is longer than {MAX_ROW_BYTES >> 20} MB; cut it or leave it")
        if line.isspace():
            continue
        try:
            values = json.loads(line)
        except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
            raise DataError(f"{where} is not JSON: {error}") from None
        if not isinstance(values, dict):
            raise DataError(f"{where} is not an object but {type(values).__name__}")
        yield where, values


def _csv_rows(path: Path, stream: BinaryIO, delimiter: str = ",") -> Iterator[Row]:
    csv.field_size_limit(MAX_ROW_BYTES)
    text = io.TextIOWrapper(stream, encoding="utf-8-sig", newline="")
    reader = csv.DictReader(text, delimiter=delimiter, strict=True)
    number = 0
    try:
        for number, values in enumerate(reader, start=1):
            where = f"{path.name} row {number}"
            if None in values:
                raise DataError(f"{where} has more fields than the header names")
            yield where, values
    except csv.Error as error:
        raise DataError(f"{path.name} row {number + 1}: {error}") from None
    finally:
        text.detach()  # the caller closes the stream


def _tsv_rows(path: Path, stream: BinaryIO) -> Iterator[Row]:
    return _csv_rows(path, stream, delimiter="\t")


def _parquet_rows(path: Path, stream: BinaryIO) -> Iterator[Row]:
    with tempfile.TemporaryFile() as unpacked:
        if is_compressed(path):
            while chunk := stream.read(1 << 20):
                unpacked.write(chunk)
            stream = unpacked  # Parquet is read from its end
        number = 0
        try:
            table = pq.ParquetFile(stream)
            for batch in table.iter_batches(batch_size=64):
                for values in batch.to_pylist():
                    number += 1
                    yield f"{path.name} row {number}", values
        except pa.ArrowException as error:
            raise DataError(f"{path} is not a Parquet file that can be read: {error}") from None


def _folder_rows(folder: Path) -> Iterator[Row]:
    """`class/file` or `split/class/file`; a document is a file of UTF-8 text."""
    parts = _subfolders(folder)
    if not parts:
        raise DataError(f"{folder} is empty: it needs a subfolder per class, with a file per text")
    if all(part.name.lower() in SPLIT_NAMES for part in parts):
        for part in parts:
            for where, values in _class_rows(part):
                yield f"{part.name}/{where}", {**values, "split": part.name.lower()}
    else:
        yield from _class_rows(folder)


def _class_rows(folder: Path) -> Iterator[Row]:
    for part in _subfolders(folder):
        for path in sorted(part.rglob("*")):
            inner = path.relative_to(part)
            if path.is_dir() or any(name.startswith(".") for name in inner.parts):
                continue
            where = f"{part.name}/{inner}"
            with open_data(path) as stream:
                content = stream.read(MAX_ROW_BYTES + 1)
                if len(content) > MAX_ROW_BYTES:
                    raise DataError(f"{where} is longer than {MAX_ROW_BYTES >> 20} MB")
                yield where, {"text": content.decode("utf-8-sig"), "label": part.name}


def _subfolders(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))


def _hub_rows(name: str) -> Iterator[Row]:
    try:
        datasets = importlib.import_module("datasets")
    except ImportError:
        raise DataError(
            f"{HUB}{name} needs the package `datasets`; install it with: pip install datasets"
        ) from None
    try:
        loaded = datasets.load_dataset(name)
    except (OSError, ValueError, RuntimeError) as error:
        raise DataError(f"cannot load {HUB}{name}: {error}") from None
    for split, rows in loaded.items():
        if split in SPLIT_NAMES:
            yield from hub_split_rows(split, rows)


def hub_split_rows(split: str, rows: Any) -> Iterator[Row]:
    """The rows of one split of a `datasets.DatasetDict`, with class numbers as names."""
    named = {
        column: feature.names
        for column, feature in rows.features.items()
        if getattr(feature, "names", None)
    }
    for number, values in enumerate(rows, start=1):
        for column, names in named.items():
            index = values[column]
            values[column] = names[index] if index is not None and index >= 0 else None
        yield f"{split} row {number}", {"split": split, **values}
