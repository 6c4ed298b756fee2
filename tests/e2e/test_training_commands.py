"""`longdoc train` and `longdoc evaluate` as people run them, good days and bad ones."""

from __future__ import annotations

import gzip
import json
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open

from longdoc import main
from models.bundle import ROOT
from tests.support.labelled import documents, write_jsonl
from training.corpus import SPLITS, read_corpus
from training.data_options import DataOptions

SMALL = (
    *("--attention", "linear", "--preset", "lra", "--vocabulary", "320", "--crop", "48"),
    *("--budget", "0.03", "--opening", "16", "--device", "cpu"),
)
COMMAND = [sys.executable, "-m", "longdoc"]


def longdoc(
    *arguments: str | Path, before: Callable[[], None] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=before,
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data.jsonl and the checkpoint `first`."""
    folder = tmp_path_factory.mktemp("trained")
    data = write_jsonl(folder / "data.jsonl", documents(120))
    done = longdoc("train", data, *SMALL, "--output", folder / "first")
    assert done.returncode == 0, done.stderr
    assert "TF-IDF" in done.stdout
    return folder


def weights(folder: Path) -> dict[str, Any]:
    with safe_open(folder / "weights.safetensors", framework="np") as file:
        return {name: file.get_tensor(name).tolist() for name in file.keys()}  # noqa: SIM118


def checks(folder: Path) -> list[dict[str, float]]:
    """The losses on the way: those after the kill come from weights that were restored."""
    found = json.loads((folder / "checkpoint.json").read_text())["training"]["checks"]
    assert len(found) > 2
    return list(found)


def test_a_killed_run_ends_with_the_same_weights(trained: Path) -> None:
    output = trained / "killed"
    command = [*COMMAND, "train", str(trained / "data.jsonl"), *SMALL, "--output", str(output)]
    state = trained / ".killed.run" / "state.safetensors"
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 300
        while not state.exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
    assert state.exists()
    assert not output.exists()
    resumed = longdoc(*command[3:], "--resume")
    assert resumed.returncode == 0, resumed.stderr
    assert "resumed at step" in resumed.stdout
    assert weights(output) == weights(trained / "first")
    assert checks(output) == checks(trained / "first")
    assert not state.parent.exists()


def test_a_checkpoint_is_evaluated_on_other_data(trained: Path) -> None:
    other = write_jsonl(trained / "other.jsonl", documents(60, seed=8))
    report = trained / "report.json"
    done = longdoc("evaluate", trained / "first", "--data", other, "--json", report)
    assert done.returncode == 0, done.stderr
    assert "data-linear on 60 documents of other.jsonl" in done.stdout
    assert "No baseline:" in done.stdout
    assert json.loads(report.read_text())["accuracy"] > 0.7


def test_evaluation_repeats_what_the_checkpoint_says(trained: Path, tmp_path: Path) -> None:
    """Splits are written out as training made them, so that both read the same documents."""
    checkpoint = json.loads((trained / "first" / "checkpoint.json").read_text())
    corpus = read_corpus(DataOptions(str(trained / "data.jsonl")))
    rows = [
        {"text": text, "label": corpus.labels[target], "split": SPLITS[split]}
        for text, target, split in zip(corpus.texts, corpus.targets, corpus.splits, strict=True)
    ]
    data, report = write_jsonl(tmp_path / "split.jsonl", rows), tmp_path / "report.json"
    done = longdoc("evaluate", trained / "first", "--data", data, "--json", report)
    assert done.returncode == 0, done.stderr
    found = json.loads(report.read_text())
    for figure in ("accuracy", "macro_f1", "confusion", "per_class", "by_length", "baseline"):
        assert found[figure] == checkpoint["evaluation"][figure], figure


def test_a_shipped_bundle_is_evaluated(tmp_path: Path) -> None:
    praise = "A moving, wonderful film with superb acting; I loved every minute of it."
    blame = "A dull, awful waste of time: the worst acting and the most boring plot."
    rows = [
        {"text": f"{text} {number}", "label": label}
        for label, text in (("pos", praise), ("neg", blame))
        for number in range(3)
    ]
    data, report = write_jsonl(tmp_path / "reviews.jsonl", rows), tmp_path / "report.json"
    done = longdoc("evaluate", ROOT / "imdb-nystromformer", "--data", data, "--json", report)
    assert done.returncode == 0, done.stderr
    assert json.loads(report.read_text())["accuracy"] == 1.0


def test_unknown_labels_are_named(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{**row, "label": "opera"} for row in documents(3)]
    data = write_jsonl(trained / "opera.jsonl", rows)
    assert main(["evaluate", str(trained / "first"), "--data", str(data)]) == 2
    assert "does not know: opera" in capsys.readouterr().err


def test_events_train_with_a_word_vocabulary(tmp_path: Path) -> None:
    rows = [{"text": row["text"].split(), "label": row["label"]} for row in documents(60)]
    data = write_jsonl(tmp_path / "events.jsonl", rows)
    done = longdoc("train", data, *SMALL, "--output", tmp_path / "events")
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "events" / "checkpoint.json").read_text())["tokenizer"] == "words"


def broken_archive(folder: Path) -> list[str]:
    path = folder / "data.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"text": "a", "label": "b"}\n' * 1000)[:40])
    return [str(path)]


def long_row(folder: Path) -> list[str]:
    rows: list[dict[str, Any]] = [*documents(9), {"text": "word " * 2_000_000, "label": "law"}]
    return [str(write_jsonl(folder / "data.jsonl", rows))]


def number_label(folder: Path) -> list[str]:
    return [str(write_jsonl(folder / "data.jsonl", [{"text": "a", "label": 3}]))]


def empty_file(folder: Path) -> list[str]:
    (folder / "data.csv").touch()
    return [str(folder / "data.csv")]


def no_tokenizer(folder: Path) -> list[str]:
    (folder / "tokenizer.json").write_text('{"model": "none"}')
    data = write_jsonl(folder / "data.jsonl", documents(30))
    return [str(data), "--tokenizer", str(folder / "tokenizer.json")]


def wrong_parameter(folder: Path) -> list[str]:
    data = write_jsonl(folder / "data.jsonl", documents(30))
    return [str(data), "--param", "landmarks=3"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (broken_archive, "broken archive"),
        (long_row, "row 10 is longer than 8 MB"),
        (number_label, "is a number"),
        (empty_file, "is empty"),
        (no_tokenizer, "is not a tokenizer"),
        (wrong_parameter, "has no parameter 'landmarks'"),
    ],
)
def test_bad_input_is_a_message_and_nothing_is_left(
    tmp_path: Path,
    make: Callable[[Path], list[str]],
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    output = tmp_path / "out" / "checkpoint"
    assert main(["train", *make(tmp_path), *SMALL, "--output", str(output)]) == 2
    assert message in capsys.readouterr().err
    assert not output.exists()


@pytest.mark.parametrize("room", [60_000, 200_000])
def test_a_full_disk_is_a_message_and_nothing_half_written_is_left(
    tmp_path: Path, room: int
) -> None:
    """No file may grow beyond `room` bytes, which fails in the stages one after the other."""
    data = write_jsonl(tmp_path / "data.jsonl", documents(120))
    output = tmp_path / "out" / "checkpoint"

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))

    done = longdoc("train", data, *SMALL, "--output", output, before=limit)
    assert done.returncode == 2, done.stderr
    assert "cannot write" in done.stderr
    assert "Traceback" not in done.stderr
    assert not output.exists()
    assert not list(tmp_path.rglob("*.partial"))


@pytest.mark.slow
def test_a_network_behind_its_baseline_ends_with_a_warning(tmp_path: Path) -> None:
    """A hundred classes of three documents, and no --attention."""
    rows = [
        {
            "text": " ".join([f"w{number % 100}_{n % 5}" for n in range(20)] + [row["text"][:400]]),
            "label": f"class {number % 100}",
        }
        for number, row in enumerate(documents(300))
    ]
    data = write_jsonl(tmp_path / "data.jsonl", rows)
    few = [*("--preset", "lra"), *("--budget", "0.01"), *("--device", "cpu")]
    done = longdoc("train", data, *few, "--output", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("attention: softmax: ")
    assert "100 of 100 classes have fewer than 10 documents" in done.stdout
    assert "WARNING: this network is worse than TF-IDF" in done.stderr
    card = (tmp_path / "out" / "card.md").read_text()
    assert "- This network is worse than TF-IDF" in card
    assert "- 100 of 100 classes" in card
