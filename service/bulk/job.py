"""A job: rows in, a file of results out, resumable after any end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from models.errors import ConfigError, LongdocError
from models.extras import require
from service.bulk.classify import Classify, classify_rows
from service.bulk.journal import Journal
from service.bulk.progress import Progress
from service.bulk.source import JSON_SUFFIXES, PARQUET_SUFFIX, Source

_FLUSH_SECONDS = 1.0


class DiskError(LongdocError):
    """An output that cannot be written."""


@dataclass(frozen=True)
class Job:
    """Which rows to classify and where to; `settings` is what decides their results."""

    source: Source
    output: Path
    settings: dict[str, Any]

    def __post_init__(self) -> None:
        if self.output.suffix.lower() not in (*JSON_SUFFIXES, PARQUET_SUFFIX):
            raise ConfigError(f"--out must end in .jsonl or .parquet; got {self.output}")
        if not self.output.parent.is_dir():
            raise ConfigError(f"{self.output.parent} is not a folder; make it first")
        if self._is_parquet:
            require("parquet", "Parquet")

    @property
    def _is_parquet(self) -> bool:
        return self.output.suffix.lower() == PARQUET_SUFFIX

    def open(self, *, resume: bool) -> Journal:
        """The journal to go on with: a new one, or an unfinished one of the same job."""
        identity = {
            "files": self.source.fingerprint(),
            "text": self.source.text,
            "id": self.source.id,
            **self.settings,
        }
        with _disk_errors(self.output):
            return Journal(self.output, identity, resume=resume)

    async def run(self, journal: Journal, classify: Classify, progress: Progress) -> None:
        """Classify what the journal does not hold yet, then write the output."""
        rows = self.source.rows(skip=journal.done)
        flushed = time.monotonic()
        with _disk_errors(self.output):
            try:
                async with aclosing(classify_rows(rows, classify)) as answers:
                    async for row, answer in answers:
                        journal.append({self.source.id_name: row.id, **answer})
                        if time.monotonic() - flushed > _FLUSH_SECONDS:
                            journal.flush()
                            flushed = time.monotonic()
                        progress.advance(row.position)
            finally:
                journal.close()
            self._write_output(journal)

    def _write_output(self, journal: Journal) -> None:
        if not self._is_parquet:
            journal.finish(journal.rows)
            return
        import pyarrow as pa  # noqa: PLC0415 - an extra

        from service.bulk.parquet import write_parquet  # noqa: PLC0415

        table = journal.folder / "rows.parquet"
        kind = pa.int64() if self.source.has_integer_ids() else pa.string()
        write_parquet(journal.records(), table, pa.field(self.source.id_name, kind))
        journal.finish(table)


@contextmanager
def _disk_errors(output: Path) -> Iterator[None]:
    """Turn a disk that is full, or may not be written to, into a sentence."""
    try:
        yield
    except OSError as error:
        raise DiskError(
            f"{output} cannot be written: {error.strerror or error}; what is done is kept: "
            "mend that and go on with --resume"
        ) from None
