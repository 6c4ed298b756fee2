"""The store keeps what it is given, from several processes, and passes over what it cannot read."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.records import SCHEMA
from benchmarks.store import Store, StoreError, load_all
from tests.support.results import a_load_test, a_measurement, a_run, fill, measurements


def test_records_come_back_as_they_were(tmp_path: Path) -> None:
    store = Store(tmp_path / "deep" / "results.sqlite")
    run, record = a_run(), a_measurement()
    test, requests = a_load_test()
    store.append(run)
    store.append(record)
    number = store.append(test, requests)
    loaded = store.load()
    assert loaded.runs == {"run-1": run}
    assert loaded.measurements == [record]
    assert loaded.load_tests == [(number, test)]
    assert store.requests(number) == requests
    assert store.requests(1) is None
    assert loaded.problems == []


def test_the_last_record_of_a_run_counts(tmp_path: Path) -> None:
    store = Store(tmp_path / "results.sqlite")
    store.append(a_run(finished=None))
    assert store.load().runs["run-1"].finished is None
    store.append(a_run())
    assert store.load().runs["run-1"].finished is not None


def test_a_store_that_is_not_there_is_empty(tmp_path: Path) -> None:
    loaded = Store(tmp_path / "none.sqlite").load()
    assert not loaded.runs
    assert not loaded.measurements
    assert not (tmp_path / "none.sqlite").exists()


_APPEND = """
import sys
from pathlib import Path
from benchmarks.store import Store
from tests.support.results import a_measurement
for index in range(100):
    Store(Path(sys.argv[1])).append(a_measurement(length=index + 1, run=sys.argv[2]))
"""


def test_processes_append_at_once(tmp_path: Path) -> None:
    path = tmp_path / "results.sqlite"
    writers = [
        subprocess.Popen([sys.executable, "-c", _APPEND, str(path), f"writer-{index}"])
        for index in range(3)
    ]
    assert [writer.wait(120) for writer in writers] == [0, 0, 0]
    loaded = Store(path).load()
    assert loaded.problems == []
    for index in range(3):
        lengths = [m.length for m in loaded.measurements if m.run == f"writer-{index}"]
        assert lengths == list(range(1, 101))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("body = substr(body, 1, 40)", "damaged"),
        ("body = x'fffe00'", "damaged"),
        ("body = json_set(body, '$.length', -1)", "length"),
        ("body = json_set(body, '$.surprise', 1)", "surprise"),
        ("kind = 'dream'", "unknown kind"),
        (f"schema = {SCHEMA + 1}", "install a newer longdoc"),
        (f"schema = {SCHEMA - 1}", "an old one's"),
        ("schema = 'x'", "damaged"),
    ],
)
def test_an_unreadable_record_is_reported_and_passed_over(
    tmp_path: Path, change: str, words: str
) -> None:
    path = tmp_path / "results.sqlite"
    store = Store(path)
    for length in (1, 2, 3):
        store.append(a_measurement(length=length))
    _execute(path, f"UPDATE records SET {change} WHERE id = 2")  # noqa: S608 - our own
    loaded = store.load()
    assert [record.length for record in loaded.measurements] == [1, 3]
    assert len(loaded.problems) == 1
    assert "record 2" in str(loaded.problems[0])
    assert words in str(loaded.problems[0])
    store.append(a_measurement(length=4))
    assert len(store.load().measurements) == 3


def test_damaged_raw_values_are_told(tmp_path: Path) -> None:
    store = Store(tmp_path / "results.sqlite")
    number = store.append(*a_load_test())
    _execute(store.path, "UPDATE records SET raw = x'00ff'")
    with pytest.raises(StoreError, match="damaged raw values"):
        store.requests(number)


def test_a_file_that_is_no_store_is_refused(tmp_path: Path) -> None:
    text = tmp_path / "text.sqlite"
    text.write_text("not a database, but long enough to be taken for one\n" * 100)
    with pytest.raises(StoreError, match=r"text\.sqlite cannot be used"):
        Store(text).load()
    other = tmp_path / "other.sqlite"
    _execute(other, "CREATE TABLE music (title TEXT)")
    with pytest.raises(StoreError, match="something else"):
        Store(other).append(a_run())


def test_a_newer_layout_is_refused_and_told_among_others(tmp_path: Path) -> None:
    newer = fill(tmp_path / "newer.sqlite")
    _execute(newer.path, "PRAGMA user_version = 99")
    good = Store(tmp_path / "good.sqlite")
    good.append(a_measurement())
    with pytest.raises(StoreError, match="newer version"):
        newer.load()
    loaded, problems = load_all([newer, good])
    assert len(loaded) == 1
    assert len(problems) == 1
    assert "install a newer longdoc" in problems[0]


def test_a_store_at_rest_is_one_file_that_reading_leaves_alone(tmp_path: Path) -> None:
    store = fill(tmp_path / "results.sqlite")
    assert [path.name for path in tmp_path.iterdir()] == ["results.sqlite"]
    before = store.path.read_bytes()
    loaded = Store(store.path, read_only=True).load()
    assert len(loaded.measurements) == len(measurements())
    assert store.path.read_bytes() == before


def test_nothing_heavy_is_loaded() -> None:
    heavy = "{'torch', 'numpy', 'onnxruntime', 'pandas', 'pyarrow'}"
    check = f"import sys, benchmarks.store; sys.exit(bool({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


def _execute(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(statement)
    connection.close()
