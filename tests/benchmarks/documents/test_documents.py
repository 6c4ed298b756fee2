"""Lengths, documents and schedules of load tests."""

from __future__ import annotations

import random
import statistics
from collections import Counter
from itertools import islice, pairwise
from pathlib import Path

import pytest

from benchmarks.documents.lengths import Fixed, Histogram, LogNormal, parse_lengths
from benchmarks.documents.making import make_documents, read_documents, write_to_length
from benchmarks.documents.writing import Writer
from benchmarks.load.arrivals import bursts, evenly, poisson, until
from models.errors import ConfigError
from tests.support.serving import tokenizer


def count(texts: object) -> list[int]:
    """Tokens of a small tokenizer, which needs several for most words."""
    return [len(encoding.ids) for encoding in tokenizer().encode_batch(list(texts))]  # type: ignore[call-overload]


def test_documents_have_the_tokens_they_say_and_never_more_than_asked_for() -> None:
    wanted = [1, 2, 7, 64, 512, 512, 4000]
    documents = write_to_length(wanted, count, seed=1)
    assert [d.tokens for d in documents] == count([d.text for d in documents])
    for document, tokens in zip(documents[3:], wanted[3:], strict=True):
        assert 0.95 * tokens - 4 <= document.tokens <= tokens
    assert documents[4].text != documents[5].text


def test_the_same_seed_writes_the_same_documents() -> None:
    first, second, other = (
        make_documents(LogNormal(median=50, sigma=0.5, high=200), 5, count, seed=seed)
        for seed in (3, 3, 4)
    )
    assert first == second
    assert first != other


def test_frequent_words_are_frequent_and_rare_words_are_rare() -> None:
    drawn = [word.strip(" ,.?!\n").lower() for word in islice(Writer(0).words(), 40_000)]
    seen = Counter(drawn)
    top = sum(number for _, number in seen.most_common(10)) / len(drawn)
    once = sum(number == 1 for number in seen.values()) / len(seen)
    assert seen.most_common(1)[0][0] == "the"
    assert 0.1 < top < 0.4  # in English about a quarter
    assert once > 0.3  # in English about a half


def test_own_documents_are_read_as_they_are_or_cut_to_length(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("sugar and neurons " * 30)
    (tmp_path / "b.md").write_text("The larvae were fed. " * 5)
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\xff")
    own = read_documents(tmp_path)
    assert len(own) == 2
    whole = make_documents(parse_lengths("documents"), 99, count, own=own)
    assert [d.text for d in whole] == own
    cut = make_documents(Fixed(40), 6, count, own=own)
    assert all(30 <= d.tokens <= 40 for d in cut)
    assert set(" ".join(d.text for d in cut).split()) <= set(" ".join(own).split())


def test_own_documents_come_from_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "documents.jsonl"
    path.write_text('{"text": "one", "label": "x"}\n\n{"text": "two"}\n')
    assert read_documents(path) == ["one", "two"]


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("none", None, "does not exist"),
        ("bad.jsonl", b'{"text": 3}\n', "line 1"),
        ("bad.jsonl", b"{\n", "line 1"),
        ("binary.txt", b"\xff\xfe\x00", "not text in UTF-8"),
        ("empty.txt", b"  \n", "empty"),
    ],
)
def test_bad_documents_are_a_sentence(
    tmp_path: Path, name: str, content: bytes | None, says: str
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=says):
        read_documents(path)


def test_log_normal_lengths_lie_around_their_median() -> None:
    lengths = parse_lengths("log-normal:300:0.8:16:4000")
    assert isinstance(lengths, LogNormal)
    drawn = [lengths.draw(random.Random(seed)) for seed in range(2000)]
    assert 270 < statistics.median(drawn) < 330
    assert min(drawn) >= 16
    assert max(drawn) <= 4000


def test_a_histogram_is_drawn_by_its_weights(tmp_path: Path) -> None:
    path = tmp_path / "lengths.txt"
    path.write_text("# tokens weight\n100 3\n1000-2000, 1\n5000\t0\n")
    lengths = parse_lengths(f"histogram:{path}")
    assert isinstance(lengths, Histogram)
    source = random.Random(0)
    drawn = [lengths.draw(source) for _ in range(4000)]
    assert 0.7 < drawn.count(100) / 4000 < 0.8
    assert all(length == 100 or 1000 <= length <= 2000 for length in drawn)


@pytest.mark.parametrize(
    "text",
    ["0", "-5", "x", "1.5", "", "log-normal:1", "log-normal:a:b", "log-normal:9:1:50:10",
     "histogram:", "99999999999999999999999", "log-normal:inf:1", "documents:x"],
)  # fmt: skip
def test_wrong_lengths_are_a_sentence(text: str) -> None:
    with pytest.raises(ConfigError, match=r"length|log-normal"):
        parse_lengths(text)


@pytest.mark.parametrize(
    "content",
    ["", "12", "a 3", "5 -1", "9-3 1", "5 nan", "5 0", "0 1", "1-2-3 4"],
)
def test_a_wrong_histogram_is_a_sentence(content: str, tmp_path: Path) -> None:
    path = tmp_path / "lengths.txt"
    path.write_text(content)
    with pytest.raises(ConfigError, match=r"lengths\.txt"):
        parse_lengths(f"histogram:{path}")
    with pytest.raises(ConfigError, match="cannot be read"):
        parse_lengths(f"histogram:{tmp_path / 'none'}")


def test_poisson_arrivals_have_the_rate_and_spread_of_poisson() -> None:
    due = list(until(2000, poisson(5, random.Random(0))))
    gaps = [b - a for a, b in pairwise(due)]
    assert due == sorted(due)
    assert len(due) / 2000 == pytest.approx(5, rel=0.05)
    assert statistics.stdev(gaps) == pytest.approx(statistics.mean(gaps), rel=0.05)


def test_bursts_keep_the_mean_and_crowd_the_beginning_of_each_period() -> None:
    due = list(until(2000, bursts(5, random.Random(0), every=10, share=0.2, peak=4)))
    early = sum(moment % 10 < 2 for moment in due) / len(due)
    assert len(due) / 2000 == pytest.approx(5, rel=0.05)
    assert early == pytest.approx(0.8, abs=0.03)
    assert list(until(1, evenly(4))) == [0.25, 0.5, 0.75]
