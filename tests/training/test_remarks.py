"""Odd data is trained on, but not before a sentence says what is odd and what to do."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from tests.support.labelled import TOPICS, documents
from training.card import behind_baseline
from training.choosing import choose_attention
from training.corpus import read_corpus
from training.data_options import DataOptions
from training.errors import DataError


def notes(tmp_path: Path, labels: list[str], **options: Any) -> list[str]:
    """What is said of a CSV file whose documents have these labels."""
    path = tmp_path / "data.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        for row, label in zip(documents(len(labels)), labels, strict=True):
            writer.writerow([row["text"], label])
    return read_corpus(DataOptions(str(path), **options)).notes


def test_data_that_is_well_gets_no_remark(tmp_path: Path) -> None:
    assert notes(tmp_path, sorted(TOPICS) * 400) == []


def test_twelve_rows(tmp_path: Path) -> None:
    few, small = notes(tmp_path, ["a", "b"] * 6)
    assert "10 documents to learn from and 1 to test on" in few
    assert "Add documents until at least 100 are for testing" in few
    assert "2 of 2 classes have fewer than 10 documents ('a' 6, 'b' 6)" in small


def test_a_class_of_two(tmp_path: Path) -> None:
    (small,) = notes(tmp_path, ["a", "b"] * 600 + ["rare"] * 2)
    assert "1 of 3 classes have fewer than 10 documents ('rare' 2)" in small
    assert "merge them with others" in small


def test_a_hundred_classes_of_three(tmp_path: Path) -> None:
    _, small = notes(tmp_path, [f"class {n}" for n in range(100)] * 3)
    assert "100 of 100 classes" in small
    assert "and 95 more" in small
    assert len(small) < 400


@pytest.mark.parametrize("separator", [";", "|", ", "])
def test_several_labels_in_a_cell(tmp_path: Path, separator: str) -> None:
    (said,) = notes(tmp_path, ["a", "b", f"a{separator}b"] * 400)
    assert "400 rows seem to have several labels in one cell" in said
    assert "learnt as a class of its own" in said


def test_a_name_with_a_comma_is_one_label(tmp_path: Path) -> None:
    assert notes(tmp_path, ["Genes, cells", "Ecology, plants", "Physics"] * 400) == []


def test_numbers_as_labels_are_named_or_remarked_on(tmp_path: Path) -> None:
    (said,) = notes(tmp_path, ["0", "1", "2"] * 400)
    assert "the labels are numbers (0, 1, 2)" in said
    assert "--label-names" in said
    path = tmp_path / "data.csv"
    named = read_corpus(DataOptions(str(path), label_names=("no", "maybe", "yes")))
    assert named.labels == ("maybe", "no", "yes")
    assert named.notes == []


def test_a_csv_without_a_header(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text("".join(f"{row['text']},{row['label']}\n" for row in documents(30)))
    for read in (read_corpus, choose_attention):
        with pytest.raises(DataError, match="put a line with the names of the columns") as caught:
            read(DataOptions(str(path)))
        assert len(str(caught.value)) < 400


@pytest.mark.parametrize(("repeat", "expected"), [(1, "softmax"), (30, "nystromformer")])
def test_the_attention_is_chosen_by_the_lengths(tmp_path: Path, repeat: int, expected: str) -> None:
    path = tmp_path / "data.csv"
    rows = [f"{row['text'] * repeat},{row['label']}\n" for row in documents(60)]
    path.write_text("text,label\n" + "".join(rows))
    name, reason = choose_attention(DataOptions(str(path)))
    assert name == expected
    assert "95%" in reason


@pytest.mark.parametrize(
    ("ours", "theirs", "p", "warned"),
    [(0, 8, 0.008, True), (8, 0, 0.008, False), (2, 5, 0.45, False), (4, 4, 1.0, False)],
)
def test_a_network_behind_its_baseline_is_warned_of(
    ours: int, theirs: int, p: float, warned: bool
) -> None:
    evaluation = {
        "accuracy": 0.0,
        "baseline": {"method": "TF-IDF and logistic regression", "accuracy": 0.267},
        "against_baseline": {"only_ours_right": ours, "only_theirs_right": theirs, "p": p},
    }
    said = behind_baseline(evaluation)
    assert bool(said) is warned
    assert not warned or "0.000 of the test documents are right, and 0.267" in said
