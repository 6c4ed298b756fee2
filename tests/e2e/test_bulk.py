"""`longdoc classify` over rows as a user runs it: killed, resumed, out of room, with bad rows."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.small_bundle import LABELS, SENTENCES, shared_bundle

ROOT = Path(__file__).parents[2]
LONGDOC = [sys.executable, "-m", "longdoc", "classify"]
COUNT = 3000


@pytest.fixture(scope="module")
def bundle() -> Path:
    return shared_bundle().path


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Short rows, long ones and empty ones."""
    path = tmp_path_factory.mktemp("rows") / "rows.parquet"
    pq.write_table(pa.Table.from_pylist([_row(n) for n in range(COUNT)]), path, row_group_size=500)
    return path


def _row(n: int) -> dict[str, Any]:
    text = SENTENCES[n % 9] * (400 if n % 100 == 5 else 1)
    return {"key": f"k{n}", "body": "  " if n % 100 == 50 else text}


def _command(bundle: Path, source: Path, output: Path, *more: str) -> list[str]:
    chosen = ["--bundle", str(bundle), "--out", str(output), "--text", "body", "--id", "key"]
    return [*LONGDOC, *chosen, str(source), *more]


def _run(*command: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=120, **options
    )


def _records(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".parquet":
        rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
        return rows
    return [json.loads(line) for line in path.read_text().splitlines()]


def _agree(some: list[dict[str, Any]], others: list[dict[str, Any]]) -> bool:
    return len(some) == len(others) and all(
        a["key"] == b["key"]
        and a.get("label") == b.get("label")
        and (a.get("error") or None) == (b.get("error") or None)
        and (a.get("score") or 0) == pytest.approx(b.get("score") or 0, abs=2e-5)
        for a, b in zip(some, others, strict=True)
    )


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_a_job_that_is_killed_twice_ends_with_the_same_results(
    bundle: Path, table: Path, tmp_path: Path, form: str
) -> None:
    whole = tmp_path / f"whole.{form}"
    done = _run(*_command(bundle, table, whole))
    assert done.returncode == 1, done.stderr  # some rows are empty
    assert "30 of 3,000 rows have an error" in done.stderr
    assert "100%  3,000 documents" in done.stderr
    expected = _records(whole)
    assert [record["key"] for record in expected] == [f"k{n}" for n in range(COUNT)]
    assert {record["label"] for record in expected if record.get("label")} <= set(LABELS)

    output = tmp_path / f"killed.{form}"
    journal = tmp_path / f"killed.{form}.partial" / "rows.jsonl"
    command = _command(bundle, table, output, "--resume")
    for least in (1, 100_000):
        process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)
        while process.poll() is None and (not journal.exists() or journal.stat().st_size < least):
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        process.wait()
    ended = _run(*command)
    assert ended.returncode == 1, ended.stderr
    assert _agree(_records(output), expected)
    assert not journal.parent.exists()


def test_rows_of_json_in_bad_shape_are_rows_with_an_error(bundle: Path, tmp_path: Path) -> None:
    lines = [json.dumps(_row(1)), "{", json.dumps({"key": "only"}), json.dumps(_row(2))]
    source = tmp_path / "rows.jsonl"
    source.write_text("\n".join(lines))
    done = _run(*_command(bundle, source, tmp_path / "out.jsonl", "--no-progress"))
    assert done.returncode == 1
    records = _records(tmp_path / "out.jsonl")
    assert ["error" in record for record in records] == [False, True, True, False]
    assert records[0]["tokens"]["used"] == records[0]["tokens"]["total"] > 0


def test_a_full_disk_is_told_and_nothing_is_lost(bundle: Path, table: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"

    def little_room() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, 150_000))

    full = _run(*_command(bundle, table, output), preexec_fn=little_room)
    assert full.returncode == 2
    assert "cannot be written: File too large; what is done is kept" in full.stderr
    assert "Traceback" not in full.stderr
    done = _run(*_command(bundle, table, output, "--resume"))
    assert done.returncode == 1, done.stderr
    assert [record["key"] for record in _records(output)] == [f"k{n}" for n in range(COUNT)]


def test_an_interrupt_keeps_what_is_done(bundle: Path, tmp_path: Path) -> None:
    table = tmp_path / "rows.parquet"  # of half a minute
    pq.write_table(pa.Table.from_pylist([_row(n) for n in range(10 * COUNT)]), table)
    output = tmp_path / "out.jsonl"
    journal = tmp_path / "out.jsonl.partial" / "rows.jsonl"
    process = subprocess.Popen(
        _command(bundle, table, output), cwd=ROOT, stderr=subprocess.PIPE, text=True
    )
    while process.poll() is None and (not journal.exists() or not journal.stat().st_size):
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in error
    assert journal.read_text().count("\n") > 0


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["--text", "prose"], "has no column 'prose'; name one of key, body with --text"),
        (["--out", "results.csv"], "--out must end in .jsonl or .parquet"),
        (["--out", "nowhere/results.jsonl"], "nowhere is not a folder"),
        (["README.md"], "README.md holds no rows"),
        (["missing.parquet"], "missing.parquet is not a file"),
    ],
)
def test_a_mistake_is_told_before_anything_is_done(
    bundle: Path, table: Path, tmp_path: Path, more: list[str], sentence: str
) -> None:
    done = _run(*_command(bundle, table, tmp_path / "out.jsonl", *more))
    assert done.returncode == 2
    assert sentence in done.stderr
    assert not list(tmp_path.iterdir())


def test_without_pyarrow_the_extra_is_named(bundle: Path, table: Path, tmp_path: Path) -> None:
    hide = "import sys; sys.modules['pyarrow'] = None; import longdoc; sys.exit(longdoc.main())"
    command = _command(bundle, table, tmp_path / "out.jsonl")[3:]
    done = _run(sys.executable, "-c", hide, "classify", *command[1:])
    assert done.returncode == 2
    assert "pip install 'longdoc[parquet]'" in done.stderr
