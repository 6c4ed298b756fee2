"""A journal goes on behind its last whole line, and only for the same job."""

from __future__ import annotations

from pathlib import Path

import pytest

from models.errors import ConfigError
from service.bulk.journal import Journal

JOB = {"files": ["a"], "bundle": "1"}


def _written(output: Path, count: int) -> Path:
    journal = Journal(output, JOB, resume=False)
    for n in range(count):
        journal.append({"row": n} if n % 4 else {"row": n, "error": "wrong"})
    journal.close()
    return journal.rows


def test_a_journal_is_read_back(tmp_path: Path) -> None:
    _written(tmp_path / "out.jsonl", 10)
    journal = Journal(tmp_path / "out.jsonl", JOB, resume=True)
    assert (journal.done, journal.failed) == (10, 3)
    journal.append({"row": 10})
    journal.close()
    assert [record["row"] for record in journal.records()] == list(range(11))


@pytest.mark.parametrize("cut", [1, 5, 9])
def test_a_line_that_was_cut_off_is_done_again(tmp_path: Path, cut: int) -> None:
    rows = _written(tmp_path / "out.jsonl", 10)
    rows.write_bytes(rows.read_bytes()[:-cut])
    journal = Journal(tmp_path / "out.jsonl", JOB, resume=True)
    assert journal.done == 9
    journal.append({"row": 9})
    journal.close()
    assert [record["row"] for record in journal.records()] == list(range(10))


def test_an_unfinished_job_is_not_begun_again_unasked(tmp_path: Path) -> None:
    _written(tmp_path / "out.jsonl", 3)
    with pytest.raises(ConfigError, match="add --resume"):
        Journal(tmp_path / "out.jsonl", JOB, resume=False)


def test_another_job_is_refused_by_what_differs(tmp_path: Path) -> None:
    _written(tmp_path / "out.jsonl", 3)
    with pytest.raises(ConfigError, match="another job: bundle differ"):
        Journal(tmp_path / "out.jsonl", JOB | {"bundle": "2"}, resume=True)


def test_an_output_that_exists_is_left_alone(tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    output.write_text("results of last year")
    with pytest.raises(ConfigError, match="exists"):
        Journal(output, JOB, resume=True)
    assert output.read_text() == "results of last year"


def test_a_finished_journal_becomes_the_output(tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    rows = _written(output, 2)
    journal = Journal(output, JOB, resume=True)
    journal.close()
    journal.finish(rows)
    assert len(output.read_text().splitlines()) == 2
    assert list(tmp_path.iterdir()) == [output]
