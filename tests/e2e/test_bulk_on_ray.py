"""`longdoc classify --ray` on a real cluster of two nodes, one of which is killed meanwhile."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.small_bundle import LABELS, SENTENCES, shared_bundle

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
COUNT = 8000


@pytest.fixture(scope="module")
def cluster() -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.two_nodes"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    yield process
    assert process.stdin is not None
    assert process.stdout is not None
    for part in [*psutil.Process(process.pid).children(recursive=True), process]:
        part.kill()  # leaving in good order takes Ray minutes
    process.wait()
    process.stdin.close()
    process.stdout.close()


def _says(cluster: subprocess.Popen[str]) -> str:
    assert cluster.stdout is not None
    return cluster.stdout.readline().strip()


def _command(source: Path, output: Path, *more: str) -> list[str]:
    chosen = ["--bundle", str(shared_bundle().path), "--out", str(output), "--id", "key"]
    return [sys.executable, "-m", "longdoc", "classify", *chosen, str(source), *more]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rows") / "rows.parquet"
    rows = [
        {"key": n, "text": SENTENCES[n % 9] * (1 if n % 50 else 60) if n % 1000 else " "}
        for n in range(COUNT)
    ]
    pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=1000)
    return path


def test_a_node_that_is_killed_costs_no_row(
    cluster: subprocess.Popen[str], table: Path, tmp_path: Path
) -> None:
    address = _says(cluster)
    output = tmp_path / "results"
    job = subprocess.Popen(
        _command(table, output, "--ray", address), cwd=ROOT, stderr=subprocess.PIPE, text=True
    )
    while job.poll() is None and not list(output.glob("*.parquet")):
        time.sleep(0.1)
    assert job.poll() is None, "the job ended before anything could be killed"
    assert cluster.stdin is not None
    cluster.stdin.write("kill\n")
    cluster.stdin.flush()
    assert _says(cluster) == "killed"
    _, error = job.communicate(timeout=300)
    assert job.returncode == 1, error[-2000:]  # some rows are empty
    assert "8 rows have an error" in error
    results = pq.read_table(output).sort_by("key")
    assert results["key"].to_pylist() == list(range(COUNT))
    labels = results["label"].to_pylist()
    assert {label for label in labels if label is not None} <= set(LABELS)
    assert [n for n, label in enumerate(labels) if label is None] == list(range(0, COUNT, 1000))


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["--ray", "127.0.0.1:1"], "no Ray cluster answers at 127.0.0.1:1"),
        (["--ray", "--out", "README.md"], "--out must be a folder"),
    ],
)
def test_a_cluster_that_cannot_serve_is_told(
    table: Path, tmp_path: Path, more: list[str], sentence: str
) -> None:
    done = subprocess.run(
        _command(table, tmp_path / "results", *more),
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 2
    assert sentence in done.stderr
