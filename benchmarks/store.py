"""The store: one SQLite file to which several processes append at once.

A record is a row of JSON with its schema's number. Nothing is changed in place: a run that ends
is written again, and its last record counts. A row that cannot be read (damaged, or of another
schema) is reported and passed over; a file that is no store raises StoreError.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from benchmarks.records import (
    KINDS,
    SCHEMA,
    AnyRecord,
    Figure,
    LoadTest,
    Measurement,
    Requests,
    Run,
)
from models.errors import LongdocError

#: The layout of the file itself, kept in its user_version.
LAYOUT = 1
#: Marks the file as ours, in its application_id.
OURS = 0x4C444F43
#: Where results go when no other place is named.
LOCAL = Path("runs/results.sqlite")
#: The results that ship with the project.
SHIPPED = Path(__file__).resolve().parent / "results.sqlite"

_WAIT_MS = 30_000
_MOST_RAW_BYTES = 256 << 20
_CREATE = """
CREATE TABLE IF NOT EXISTS records (
    id INTEGER PRIMARY KEY, kind TEXT NOT NULL, schema INTEGER NOT NULL, body TEXT NOT NULL,
    raw BLOB
)
"""


class StoreError(LongdocError):
    """A results file that cannot be read or written."""


@dataclass(frozen=True)
class Problem:
    """A record that was passed over, and why."""

    store: Path
    row: int
    reason: str

    def __str__(self) -> str:
        return f"{self.store}, record {self.row}: {self.reason}"


@dataclass(frozen=True)
class Loaded:
    """What a store holds: records by kind, oldest first, and what could not be read."""

    runs: dict[str, Run]
    measurements: list[Measurement]
    load_tests: list[tuple[int, LoadTest]]
    figures: list[Figure]
    problems: list[Problem]


class Store:
    """A results file. Every call opens and closes it, so that nothing is held between calls."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path = path
        self.read_only = read_only

    def append(self, record: AnyRecord, requests: Requests | None = None) -> int:
        """Add a record, with a load test's raw requests; return its number."""
        raw = None if requests is None else zlib.compress(requests.model_dump_json().encode())
        with self._open() as connection, connection:
            row = connection.execute(
                "INSERT INTO records (kind, schema, body, raw) VALUES (?, ?, ?, ?)",
                (record.kind, SCHEMA, record.model_dump_json(), raw),
            )
            return int(row.lastrowid or 0)

    def load(self) -> Loaded:
        """Read all that can be read."""
        loaded = Loaded({}, [], [], [], [])
        if not self.path.exists():
            return loaded
        with self._open() as connection:
            rows = connection.execute("SELECT id, kind, schema, body FROM records ORDER BY id")
            for number, kind, schema, body in rows:
                try:
                    record = _parse(kind, schema, body)
                except StoreError as error:
                    loaded.problems.append(Problem(self.path, number, str(error)))
                    continue
                if isinstance(record, Run):
                    loaded.runs[record.run] = record
                elif isinstance(record, Measurement):
                    loaded.measurements.append(record)
                elif isinstance(record, Figure):
                    loaded.figures.append(record)
                else:
                    loaded.load_tests.append((number, record))
        return loaded

    def requests(self, number: int) -> Requests | None:
        """The raw requests of a load test, by its record's number."""
        with self._open() as connection:
            row = connection.execute("SELECT raw FROM records WHERE id = ?", (number,)).fetchone()
        if row is None or row[0] is None:
            return None
        unpack = zlib.decompressobj()
        try:
            text = unpack.decompress(row[0], _MOST_RAW_BYTES)
            if unpack.unconsumed_tail:
                raise StoreError(f"record {number} holds more than {_MOST_RAW_BYTES} raw bytes")
            return Requests.model_validate_json(text)
        except (zlib.error, ValidationError, TypeError) as error:
            raise StoreError(f"{self.path}, record {number}: damaged raw values: {error}") from None

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            if not self.read_only:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            mode = "?mode=ro&immutable=1" if self.read_only else ""
            uri = self.path.resolve().as_uri() + mode
            with closing(sqlite3.connect(uri, uri=True, timeout=_WAIT_MS / 1000)) as connection:
                connection.text_factory = _decode
                self._check_layout(connection)
                yield connection
        except (sqlite3.Error, OSError) as error:
            raise StoreError(
                f"{self.path} cannot be used as a results file: {error}; move it away or name "
                "another with --store"
            ) from None

    def _check_layout(self, connection: sqlite3.Connection) -> None:
        owner = connection.execute("PRAGMA application_id").fetchone()[0]
        layout = connection.execute("PRAGMA user_version").fetchone()[0]
        empty = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
        if not empty and owner != OURS:
            raise StoreError(f"{self.path} is a database of something else; name another")
        if layout > LAYOUT:
            raise StoreError(
                f"{self.path} was written by a newer version (layout {layout}; this one reads up "
                f"to {LAYOUT}): install a newer longdoc"
            )
        if empty and not self.read_only:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA application_id = {OURS}")
            connection.execute(_CREATE)
            connection.execute(f"PRAGMA user_version = {LAYOUT}")
            connection.commit()


def load_all(stores: Sequence[Store]) -> tuple[list[Loaded], list[str]]:
    """Every store's records, and a sentence for each store or record that could not be read."""
    loaded, problems = [], []
    for store in stores:
        try:
            found = store.load()
        except StoreError as error:
            problems.append(str(error))
            continue
        loaded.append(found)
        problems.extend(str(problem) for problem in found.problems)
    return loaded, problems


def _parse(kind: str, schema: object, body: str) -> AnyRecord:
    if not isinstance(schema, int):
        raise StoreError(f"damaged: its schema is {str(schema)[:20]!r}")
    if schema != SCHEMA:
        age = "a newer version's: install a newer longdoc" if schema > SCHEMA else "an old one's"
        raise StoreError(f"its schema {schema} is {age}; this version reads {SCHEMA}")
    model = KINDS.get(kind)
    if model is None:
        raise StoreError(f"unknown kind {kind!r}")
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise StoreError(f"damaged: {place + ': ' if place else ''}{first['msg']}") from None


def _decode(text: bytes) -> str:
    return text.decode(errors="replace")
