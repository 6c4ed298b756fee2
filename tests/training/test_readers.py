"""Every format is read, compressed or not, and what is broken is named."""

from __future__ import annotations

import csv
import gzip
import io
import json
import lzma
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from training.errors import DataError
from training.readers import MAX_ROW_BYTES, hub_split_rows, read_rows

ROWS = [
    {"text": "Straße, “quoted” and\nbroken", "label": "a"},
    {"text": "zwei, drei", "label": "b"},
]


def jsonl() -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS).encode()


def table(delimiter: str) -> bytes:
    buffer = io.StringIO(newline="")
    writer = csv.DictWriter(buffer, ["text", "label"], delimiter=delimiter)
    writer.writeheader()
    writer.writerows(ROWS)
    return buffer.getvalue().encode()


def parquet() -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(ROWS), buffer)
    return buffer.getvalue()


FORMATS = {
    "jsonl": jsonl(),
    "ndjson": jsonl(),
    "csv": table(","),
    "tsv": table("\t"),
    "parquet": parquet(),
}
PACKERS = {
    "": lambda content: content,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}


@pytest.mark.parametrize("packing", PACKERS)
@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_is_read_in_every_packing(tmp_path: Path, kind: str, packing: str) -> None:
    path = tmp_path / f"data.{kind}{packing}"
    path.write_bytes(PACKERS[packing](FORMATS[kind]))
    assert [dict(values) for _, values in read_rows(str(path))] == ROWS


@pytest.mark.parametrize("packing", [".gz", ".xz", ".zst"])
@pytest.mark.parametrize("damage", ["cut off", "overwritten", "not an archive"])
def test_a_broken_archive_is_named(tmp_path: Path, packing: str, damage: str) -> None:
    many = b"".join(
        json.dumps({"text": f"row {n} {hash(str(n))}", "label": "a"}).encode() + b"\n"
        for n in range(2000)
    )
    content = bytearray(PACKERS[packing](many))
    if damage == "cut off":
        content = content[: len(content) // 2]
    elif damage == "overwritten":
        content[len(content) // 2 : len(content) // 2 + 64] = bytes(64)
    else:
        content = bytearray(b"plain text")
    path = tmp_path / f"data.jsonl{packing}"
    path.write_bytes(content)
    # What gzip unpacks from overwritten bytes is garbage before its checksum tells.
    with pytest.raises(DataError, match=rf"data\.jsonl\{packing} (is a broken archive|row \d+ is)"):
        list(read_rows(str(path)))


def test_several_zstd_frames_are_one_file(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl.zst"
    first, second = jsonl().splitlines(keepends=True)
    pack = zstandard.ZstdCompressor().compress
    path.write_bytes(pack(first) + pack(second))
    assert [dict(values) for _, values in read_rows(str(path))] == ROWS


@pytest.mark.parametrize("name", ["data.jsonl", "data.csv", "data.jsonl.gz", "data.parquet"])
def test_an_empty_file_is_an_error(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress(b"") if name.endswith("gz") else b"")
    with pytest.raises(DataError, match=r"empty|Parquet"):
        list(read_rows(str(path)))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b'{"text": "x"}\n{"text": \n', "row 2 is not JSON"),
        ("a.jsonl", b"[1, 2]\n", "row 1 is not an object but list"),
        ("a.jsonl", b'{"text": "\xff"}\n', "row 1 is not JSON"),
        ("a.csv", b"text,label\nx,y,z\n", "row 1 has more fields than the header"),
        ("a.csv", b'text,label\n"x,y\n', "row 1: unexpected end of data"),
        ("a.csv", b"text,label\n\xff,y\n", "is not UTF-8"),
        ("a.parquet", b"PAR1 not really", "is not a Parquet file"),
        ("a.docx", b"x", "no known format"),
    ],
)
def test_broken_content_is_named(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        list(read_rows(str(path)))


@pytest.mark.parametrize("name", ["long.jsonl", "long.csv"])
def test_a_row_of_10_mb_is_refused_with_its_number(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    text = "word " * (2 * MAX_ROW_BYTES // 5)
    if name.endswith("csv"):
        path.write_text(f"text,label\nshort,a\n{text},b\n")
    else:
        path.write_text('{"text": "short"}\n' + json.dumps({"text": text}) + "\n")
    with pytest.raises(DataError, match=r"row 2.*(longer than 8 MB|field larger)"):
        list(read_rows(str(path)))


def test_what_is_not_there_suggests_the_hub() -> None:
    with pytest.raises(DataError, match="write hf:no/such"):
        read_rows("no/such")


def test_a_folder_holds_a_subfolder_per_class(tmp_path: Path) -> None:
    for name, text in {"neg/1.txt": "bad", "pos/1.txt": "good", "pos/deep/2.txt": "fine"}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "pos" / ".hidden").write_text("not a document")
    assert list(read_rows(str(tmp_path))) == [
        ("neg/1.txt", {"text": "bad", "label": "neg"}),
        ("pos/1.txt", {"text": "good", "label": "pos"}),
        ("pos/deep/2.txt", {"text": "fine", "label": "pos"}),
    ]


def test_a_folder_may_hold_splits(tmp_path: Path) -> None:
    for split in ("train", "test"):
        (tmp_path / split / "pos").mkdir(parents=True)
        (tmp_path / split / "pos" / "1.txt").write_text(split)
    assert list(read_rows(str(tmp_path))) == [
        ("test/pos/1.txt", {"text": "test", "label": "pos", "split": "test"}),
        ("train/pos/1.txt", {"text": "train", "label": "pos", "split": "train"}),
    ]


def test_a_folder_without_classes_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="needs a subfolder per class"):
        list(read_rows(str(tmp_path)))


def test_a_hub_data_set_needs_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DataError, match="pip install datasets"):
        list(read_rows("hf:some/name"))


def test_class_numbers_of_the_hub_become_names() -> None:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        text=datasets.Value("string"), label=datasets.ClassLabel(names=["neg", "pos"])
    )
    rows = datasets.Dataset.from_dict({"text": ["a", "b"], "label": [1, 0]}, features=features)
    assert list(hub_split_rows("validation", rows)) == [
        ("validation row 1", {"split": "validation", "text": "a", "label": "pos"}),
        ("validation row 2", {"split": "validation", "text": "b", "label": "neg"}),
    ]
