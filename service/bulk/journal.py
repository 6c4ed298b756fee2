"""What a job has done so far, kept in a folder beside its output until the output is whole.

The journal is the rows' results as JSON Lines, in the rows' order: how many lines it holds is
where a killed job goes on. A line that was cut off is dropped and done again.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from models.errors import ConfigError


class Journal:
    """An open journal; `done` rows of it are written, `failed` of them with an error."""

    def __init__(self, output: Path, identity: dict[str, Any], *, resume: bool) -> None:
        self.output = output
        self.folder = output.with_name(output.name + ".partial")
        self.rows = self.folder / "rows.jsonl"
        self._about = self.folder / "job.json"
        if output.exists():
            raise ConfigError(f"{output} exists; move it away or name another --out")
        if self._about.exists():
            self._check(identity, resume=resume)
        else:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._about.write_text(json.dumps(identity, indent=1))
        self.done = self.failed = 0
        self._file = self._open()

    def _check(self, identity: dict[str, Any], *, resume: bool) -> None:
        """Refuse to go on with another job's journal."""
        if not resume:
            raise ConfigError(
                f"{self.folder} holds an unfinished job; add --resume to go on with it, or "
                "remove it to begin again"
            )
        try:
            before = json.loads(self._about.read_text())
        except ValueError:
            before = {}
        changed = [name for name in identity if before.get(name) != identity[name]]
        if changed:
            raise ConfigError(
                f"{self.folder} is of another job: {', '.join(changed)} differ; give the same "
                "files and options, or remove it to begin again"
            )

    def _open(self) -> BinaryIO:
        """The file behind its last whole line, with its lines counted."""
        file = self.rows.open("a+b")
        file.seek(0)
        whole = 0
        for line in file:
            if not line.endswith(b"\n"):
                break
            whole += len(line)
            self._count(line)
        file.truncate(whole)
        file.seek(whole)
        return file

    def _count(self, line: bytes) -> None:
        self.done += 1
        self.failed += "error" in json.loads(line)

    def append(self, record: dict[str, Any]) -> None:
        """Write a row's result."""
        self._file.write(json.dumps(record, ensure_ascii=False).encode() + b"\n")
        self.done += 1
        self.failed += "error" in record

    def flush(self) -> None:
        """Hand what is written to the system, where a kill cannot take it back."""
        self._file.flush()

    def close(self) -> None:
        """Keep what is done for the next time."""
        self._file.close()

    def records(self) -> Iterator[dict[str, Any]]:
        """All results, read back."""
        with self.rows.open("rb") as file:
            for line in file:
                yield json.loads(line)

    def finish(self, whole: Path) -> None:
        """Make a file of the journal's folder the output, and forget the journal."""
        whole.replace(self.output)
        shutil.rmtree(self.folder)
