"""Labelled documents, checked: texts, labels and splits, or a message that says what is wrong."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.files import sha256_of
from training.data_options import HUB, DataOptions
from training.errors import DataError
from training.readers import MAX_ROW_BYTES, SPLIT_NAMES, Row, read_rows
from training.remarks import remarks
from training.splits import complete_splits

SPLITS = ("train", "valid", "test")
_SHOWN = 10  # rows named in a message
_LONGEST_LABEL = 200
_LONGEST_COLUMN = 40  # characters shown; in a file without a header, a document is the name


@dataclass(frozen=True)
class Corpus:
    """Checked documents. A row given as a list of strings is kept joined by spaces.

    targets   index of each document's label
    splits    index into SPLITS of each document
    words     whether the rows were lists of strings
    digest    stands for texts, labels and splits
    notes     what was found and is worth telling
    """

    texts: list[str]
    labels: tuple[str, ...]
    targets: NDArray[np.int64]  # (documents,)
    splits: NDArray[np.int64]  # (documents,)
    words: bool
    files: list[dict[str, str]]
    digest: str
    notes: list[str]

    def rows(self, split: str) -> NDArray[np.int64]:
        """The indices of a split's documents."""
        return np.flatnonzero(self.splits == SPLITS.index(split))


@dataclass
class _Rows:
    texts: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    splits: list[str | None] = field(default_factory=list)
    kinds: set[bool] = field(default_factory=set)
    missing: dict[str, list[str]] = field(default_factory=lambda: {"text": [], "label": []})
    files: list[dict[str, str]] = field(default_factory=list)


def read_corpus(options: DataOptions, *, only_test: bool = False) -> Corpus:
    """Read and check all documents; with `only_test`, those to evaluate on are enough."""
    rows = _Rows()
    for source, split in ((options.data, None), (options.valid, "valid"), (options.test, "test")):
        if source is not None:
            _take(rows, read_rows(source), options, split)
            rows.files.append(_file_record(source))
    notes = _incomplete(rows, options.drop_incomplete)
    if len(rows.kinds) > 1:
        raise DataError("some rows are texts and some are lists of strings; make them all one kind")
    if only_test:
        splits = np.array([SPLITS.index(s or "test") for s in rows.splits])
    else:
        notes += _classes(rows, options.drop_incomplete)
        splits = complete_splits(rows.labels, rows.splits, options.seed)
    notes += _duplicates(rows, splits, drop=options.drop_duplicates)
    kept = np.flatnonzero(splits >= 0)
    labels = tuple(sorted({rows.labels[i] for i in kept}))
    index = {label: i for i, label in enumerate(labels)}
    texts = [rows.texts[i] for i in kept]
    names = [rows.labels[i] for i in kept]
    splits = splits[kept]
    if not only_test:
        _splits_can_be_used(names, splits)
        notes += remarks(names, splits)
    return Corpus(
        texts,
        labels,
        np.array([index[name] for name in names]),
        splits,
        True in rows.kinds,
        rows.files,
        _digest(texts, names, splits),
        notes,
    )


def _take(rows: _Rows, source: Iterable[Row], options: DataOptions, split: str | None) -> None:
    """Add the rows of one source; what a row lacks is noted, what cannot be is an error."""
    for number, (where, values) in enumerate(source):
        if number == 0:
            check_columns(values, options, where)
        text = _text(values.get(options.text), where)
        label = _label(values.get(options.label), options.label_names, where)
        rows.missing["text"] += [where] if text is None else []
        rows.missing["label"] += [where] if label is None else []
        if text is None or label is None:
            continue
        rows.kinds.add(isinstance(values[options.text], list))
        rows.texts.append(text)
        rows.labels.append(label)
        rows.splits.append(split or _split(values.get(options.split), where))


def check_columns(values: Any, options: DataOptions, where: str) -> None:
    """Raise DataError when a row lacks the columns of text and label; it names those there are."""
    for option, column in (("--text", options.text), ("--label", options.label)):
        if column not in values:
            there = ", ".join(_shortened(str(name)) for name in values) or "none"
            raise DataError(
                f"{where} has no column {column!r}; it has: {there}. Name the right one with "
                f"{option}; if these are a document and its label, put a line with the names of "
                f"the columns above them ({options.text},{options.label})"
            )


def _shortened(name: str) -> str:
    return name if len(name) <= _LONGEST_COLUMN else f"{name[: _LONGEST_COLUMN - 1]}…"


def _text(value: Any, where: str) -> str | None:
    if value is None:
        return None
    if isinstance(value, list):
        for token in value:
            if not isinstance(token, str) or not token or len(token.split()) != 1:
                raise DataError(
                    f"{where}: {token!r} in the list is not a word; write every event as a string "
                    "without white space"
                )
        value = " ".join(value)
    if not isinstance(value, str):
        raise DataError(
            f"{where}: the text is of type {type(value).__name__}; it must be a string or a list "
            "of strings"
        )
    try:
        size = len(value.encode())
    except UnicodeEncodeError as error:
        raise DataError(f"{where}: the text holds half a character: {error}") from None
    if size > MAX_ROW_BYTES:
        raise DataError(f"{where}: the text is longer than {MAX_ROW_BYTES >> 20} MB; cut it")
    return value if value and not value.isspace() else None


def _label(value: Any, names: Sequence[str], where: str) -> str | None:
    if value is None:
        return None
    if isinstance(value, int | float):
        if not names:
            raise DataError(
                f"{where}: the label {value!r} is a number, which tells a reader nothing; write "
                "the name of the class, or give the names of 0, 1, … with --label-names A,B,…"
            )
        if value != int(value) or not 0 <= value < len(names):
            raise DataError(f"{where}: the label {value!r} is none of 0 to {len(names) - 1}")
        return names[int(value)]
    if names and isinstance(value, str) and value.strip().isdecimal():
        return _label(int(value), names, where)  # CSV has no numbers of its own
    if not isinstance(value, str):
        raise DataError(f"{where}: the label is of type {type(value).__name__}, not a string")
    if len(value) > _LONGEST_LABEL:
        raise DataError(
            f"{where}: the label has {len(value)} characters; at most {_LONGEST_LABEL} are "
            "allowed. Is it the text?"
        )
    return value.strip() or None


def _split(value: Any, where: str) -> str | None:
    if value is None or value == "":
        return None
    known = SPLIT_NAMES.get(str(value).lower())
    if known is None:
        raise DataError(f"{where}: the split {value!r} is none of train, valid and test")
    return known


def _incomplete(rows: _Rows, drop: bool) -> list[str]:
    notes = []
    for what, places in rows.missing.items():
        if places:
            more = f" and {len(places) - _SHOWN} more" if len(places) > _SHOWN else ""
            notes.append(f"without {what}: {', '.join(places[:_SHOWN])}{more}")
    if notes and not drop:
        raise DataError(
            f"rows are incomplete; {'; '.join(notes)}. Mend them, or leave them out with "
            "--drop-incomplete"
        )
    if not rows.texts:
        raise DataError("no row has both a text and a label")
    return [f"left out rows {note}" for note in notes]


def _classes(rows: _Rows, drop: bool) -> list[str]:
    counts = Counter(rows.labels)
    single = sorted(label for label, count in counts.items() if count == 1)
    notes = []
    if single and drop:
        keep = [i for i, label in enumerate(rows.labels) if counts[label] > 1]
        rows.texts = [rows.texts[i] for i in keep]
        rows.labels = [rows.labels[i] for i in keep]
        rows.splits = [rows.splits[i] for i in keep]
        notes.append(f"left out classes with a single document: {', '.join(single[:_SHOWN])}")
    elif single and len(counts) > 1:
        raise DataError(
            f"classes with a single document cannot be learnt and tested: "
            f"{', '.join(single[:_SHOWN])}. Add documents, or leave them out with "
            "--drop-incomplete"
        )
    left = sorted(set(rows.labels))
    if len(left) < 2:
        raise DataError(
            f"all documents are of one class ({', '.join(left) or 'none'}); there must be two"
        )
    return notes


def _duplicates(rows: _Rows, splits: NDArray[np.int64], *, drop: bool) -> list[str]:
    """Mark with −1 what is dropped."""
    digests = [hashlib.blake2b(text.encode(), digest_size=16).digest() for text in rows.texts]
    test = SPLITS.index("test")
    tested = {digest for digest, split in zip(digests, splits, strict=True) if split == test}
    repeated = [i for i, s in enumerate(splits) if s != test and digests[i] in tested]
    if not repeated:
        return []
    if drop:
        splits[repeated] = -1
        return [f"left out {len(repeated)} documents of train and valid that stand in test too"]
    return [
        f"{len(repeated)} documents of train and valid stand in test too, which flatters the "
        "result; leave them out with --drop-duplicates"
    ]


def _splits_can_be_used(names: Sequence[str], splits: NDArray[np.int64]) -> None:
    for number, split in enumerate(SPLITS):
        if not np.any(splits == number):
            raise DataError(f"no document is left for {split}; add documents or splits")
    trained = {name for name, split in zip(names, splits, strict=True) if split == 0}
    untrained = sorted(set(names) - trained)
    if untrained:
        raise DataError(
            f"classes without a training document: {', '.join(untrained[:_SHOWN])}; change the "
            "splits"
        )


def _digest(texts: list[str], names: list[str], splits: NDArray[np.int64]) -> str:
    digest = hashlib.sha256()
    for text, name, split in zip(texts, names, splits, strict=True):
        for part in (text, name, SPLITS[split]):
            encoded = part.encode()
            digest.update(len(encoded).to_bytes(8, "little") + encoded)
    return digest.hexdigest()


def _file_record(source: str) -> dict[str, str]:
    path = Path(source)
    if source.startswith(HUB) or path.is_dir():
        return {"name": path.name if path.is_dir() else source}
    return {"name": path.name, "sha256": sha256_of(path)}
