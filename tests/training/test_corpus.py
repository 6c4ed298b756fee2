"""What is wrong with the data is said before time is spent on it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.labelled import documents, write_jsonl
from training.corpus import SPLITS, Corpus, read_corpus
from training.data_options import DataOptions
from training.errors import DataError
from training.splits import complete_splits


def read(tmp_path: Path, rows: list[dict[str, Any]], **options: Any) -> Corpus:
    path = write_jsonl(tmp_path / "data.jsonl", rows)
    return read_corpus(DataOptions(str(path), **options))


def counts(corpus: Corpus) -> dict[str, int]:
    return {split: len(corpus.rows(split)) for split in SPLITS}


def test_documents_without_splits_are_split_by_class(tmp_path: Path) -> None:
    corpus = read(tmp_path, documents(120))
    assert corpus.labels == ("food", "law", "sport")
    assert counts(corpus) == {"train": 96, "valid": 12, "test": 12}
    for split in SPLITS:
        per_label = Counter(corpus.targets[corpus.rows(split)].tolist())
        assert len(set(per_label.values())) == 1  # classes are of one size, so are their parts


def test_given_splits_are_kept_and_missing_ones_are_cut_out_of_train(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {**row, "part": "test" if n < 30 else "training"} for n, row in enumerate(documents(120))
    ]
    corpus = read(tmp_path, rows, split="part")
    assert counts(corpus) == {"train": 78, "valid": 12, "test": 30}
    assert corpus.rows("test").tolist() == list(range(30))


def test_further_sources_are_splits(tmp_path: Path) -> None:
    test = write_jsonl(tmp_path / "test.jsonl", documents(30, seed=1))
    valid = write_jsonl(tmp_path / "valid.jsonl", documents(15, seed=2))
    corpus = read(tmp_path, list(documents(60)), test=str(test), valid=str(valid))
    assert counts(corpus) == {"train": 60, "valid": 15, "test": 30}
    assert [file["name"] for file in corpus.files] == ["data.jsonl", "valid.jsonl", "test.jsonl"]


@given(sizes=st.lists(st.integers(2, 60), min_size=2, max_size=6), seed=st.integers(0, 5))
def test_splits_are_stratified_seeded_and_leave_something_to_train_on(
    sizes: list[int], seed: int
) -> None:
    labels = [f"c{c}" for c, size in enumerate(sizes) for _ in range(size)]
    splits = complete_splits(labels, [None] * len(labels), seed)
    assert np.array_equal(splits, complete_splits(labels, [None] * len(labels), seed))
    trained = {label for label, split in zip(labels, splits, strict=True) if split == 0}
    assert trained == set(labels)
    for wanted in (1, 2):
        share = np.count_nonzero(splits == wanted) / len(labels)
        assert abs(share - 0.1) <= len(sizes) / len(labels) + 0.5 / len(labels)


def test_another_seed_splits_otherwise(tmp_path: Path) -> None:
    first, second = (read(tmp_path, list(documents(120)), seed=seed) for seed in (0, 1))
    assert first.digest != second.digest
    assert counts(first) == counts(second)


def test_rows_without_text_or_label_are_named(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = list(documents(60))
    rows[4] = {**rows[4], "text": "  "}
    rows[9] = {"text": "no label here"}
    with pytest.raises(DataError) as caught:
        read(tmp_path, rows)
    assert "without text: data.jsonl row 5;" in str(caught.value)
    assert "without label: data.jsonl row 10." in str(caught.value)
    corpus = read(tmp_path, rows, drop_incomplete=True)
    assert len(corpus.texts) == 58
    assert corpus.notes[0] == "left out rows without text: data.jsonl row 5"


def test_a_missing_column_names_those_that_are_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no column 'body'; it has: text, label.*--text"):
        read(tmp_path, list(documents(9)), text="body")


def test_one_class_is_not_enough(tmp_path: Path) -> None:
    rows = [{**row, "label": "all"} for row in documents(9)]
    with pytest.raises(DataError, match=r"one class \(all\)"):
        read(tmp_path, rows)


def test_a_class_with_a_single_document_is_named_and_dropped_on_request(tmp_path: Path) -> None:
    rows = [*documents(30), {"text": "lonely", "label": "rare"}]
    with pytest.raises(DataError, match=r"single document.*rare"):
        read(tmp_path, rows)
    corpus = read(tmp_path, rows, drop_incomplete=True)
    assert "rare" not in corpus.labels


def test_duplicates_across_train_and_test_are_counted_and_dropped_on_request(
    tmp_path: Path,
) -> None:
    train = [{**row, "split": "train"} for row in documents(60)]
    test = [{**row, "split": "test"} for row in documents(30, seed=3)]
    test[0]["text"], test[1]["text"] = train[7]["text"], train[8]["text"]
    corpus = read(tmp_path, [*train, *test])
    assert any(
        note.startswith("2 documents of train and valid stand in test") for note in corpus.notes
    )
    assert len(corpus.texts) == 90
    dropped = read(tmp_path, [*train, *test], drop_duplicates=True)
    assert len(dropped.texts) == 88
    assert counts(dropped)["test"] == 30


def test_a_label_that_is_a_number_needs_a_name(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{**row, "label": n % 2} for n, row in enumerate(documents(20))]
    with pytest.raises(DataError, match=r"row 1: the label 0 is a number.*--label-names"):
        read(tmp_path, rows)
    assert read(tmp_path, rows, label_names=("no", "yes")).labels == ("no", "yes")
    rows[3]["label"] = 7
    with pytest.raises(DataError, match=r"row 4: the label 7 is none of 0 to 1"):
        read(tmp_path, rows, label_names=("no", "yes"))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"text": 5, "label": "a"}, "text is of type int"),
        ({"text": ["a b"], "label": "a"}, "'a b' in the list is not a word"),
        ({"text": ["a", 3], "label": "a"}, "3 in the list is not a word"),
        ({"text": "x", "label": ["a"]}, "label is of type list"),
        ({"text": "x", "label": "y" * 201}, "Is it the text"),
        ({"text": "x", "label": "a", "split": "holdout"}, "'holdout' is none of"),
        ({"text": "half \ud800", "label": "a"}, "half a character"),
        ({"text": ["a", "b"], "label": "food"}, "some are lists"),
    ],
)
def test_a_wrong_row_is_named(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(tmp_path, [*documents(9), row])


def test_lists_of_strings_are_words(tmp_path: Path) -> None:
    rows = [{"text": row["text"].split(), "label": row["label"]} for row in documents(30)]
    corpus = read(tmp_path, rows)
    assert corpus.words
    assert corpus.texts == [row["text"] for row in documents(30)]


def test_a_class_that_is_only_in_test_is_an_error(tmp_path: Path) -> None:
    rows = [{**row, "split": "train"} for row in documents(60)]
    rows += [{"text": f"new {n}", "label": "new", "split": "test"} for n in range(3)]
    with pytest.raises(DataError, match="without a training document: new"):
        read(tmp_path, rows)


def test_the_digest_stands_for_texts_labels_and_splits(tmp_path: Path) -> None:
    rows = [{**row, "split": SPLITS[n % 4 % 3]} for n, row in enumerate(documents(30))]
    before = read(tmp_path, rows).digest
    assert read(tmp_path, rows).digest == before
    rows[0], changed = {**rows[0], "split": "test"}, rows[0]
    assert read(tmp_path, rows).digest != before
    rows[0] = {**changed, "text": changed["text"] + "!"}
    assert read(tmp_path, rows).digest != before
