"""The choice follows from the measurements, the documents and the limits."""

from __future__ import annotations

import pytest

from dashboard.accuracy import Classifier
from dashboard.choosing import (
    Wanted,
    explain,
    from_percentiles,
    lengths_of_files,
    parse_lengths,
    rank,
)
from tests.support.results import a_measurement, measurements

KNOWN = {
    name: Classifier(f"elife-{name}", "elife", name, 16_384, {"accuracy": accuracy})
    for name, accuracy in (("softmax", 0.72), ("linear", 0.72), ("performer", 0.65))
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("100, 200\n300", [100, 200, 300]),
        ("100;0;7.0", [100, 7]),
        ("one two three four five\n\nsix", [7, 2]),
        ("12 monkeys", [3]),
        ("", []),
    ],
)
def test_lengths_are_read_from_counts_or_texts(text: str, expected: list[int]) -> None:
    assert parse_lengths(text) == expected


def test_percentiles_become_lengths_with_these_percentiles() -> None:
    lengths = from_percentiles(1000, 8000, 16_000)
    assert len(lengths) == 100
    assert lengths[50] == 1000
    assert lengths[95] == 8000
    assert max(lengths) == 16_000
    assert from_percentiles(10, 10, 10)[99] == 10


def test_long_documents_prefer_what_grows_in_proportion() -> None:
    best = rank(measurements(), Wanted([16_384] * 10, None, None, 2), KNOWN)[0]
    assert best.attention == "linear"  # as accurate as softmax, and faster on long ones
    assert best.engine == "onnxruntime"
    assert best.command() == (
        "longdoc serve --bundle elife-linear --engine onnxruntime --precision fp32"
    )
    short = rank(measurements(), Wanted([128] * 10, None, None, 2), KNOWN)[0]
    assert short.attention == "softmax"


def test_figures_of_a_candidate() -> None:
    records = [
        a_measurement("linear", n, n / 1e5, baseline_bytes=10**8, peak_bytes=n * 1000)
        for n in (1000, 10_000)
    ]
    (found,) = rank(records, Wanted([1000, 10_000], 1000, 1000, 4), {})
    assert found.per_core == pytest.approx(1 / 0.055)
    assert found.documents_per_second == pytest.approx(4 / 0.055)
    assert found.memory_mb == pytest.approx(100 + 4 * 10)
    assert 50 < found.p95_ms < 130
    assert found.fits
    assert not found.beyond


def test_documents_over_the_limit_are_read_in_windows() -> None:
    records = [a_measurement("linear", n, n / 1e5) for n in (1000, 10_000)]
    small = {"linear": Classifier("e-linear", "e", "linear", 1000, {})}
    (found,) = rank(records, Wanted([2500], None, None, 1), small)
    # Four windows, which share 256 tokens: 2,500 and three times 256 tokens are read.
    assert found.per_core == pytest.approx(1 / (4 * 817 / 1e5))
    assert found.reading == "4 windows of 817 tokens"


def test_what_misses_the_limits_comes_last_and_is_said() -> None:
    wanted = Wanted([4096], 200, None, 2)
    ranked = rank(measurements(), wanted, KNOWN)
    flags = [candidate.fits for candidate in ranked]
    assert flags == sorted(flags, reverse=True)
    assert "that meet the limits" in explain(ranked, wanted)
    assert "72.0%" in explain(ranked, wanted)
    none = Wanted([4096], 0.001, None, 2)
    assert explain(rank(measurements(), none, KNOWN), none).startswith("Nothing meets the limits")


def test_a_text_is_one_document_whatever_its_lines() -> None:
    essay = "A first line.\nA second line.\n\nAnd a third."
    assert lengths_of_files([("essay.txt", essay)]) == [13]
    assert lengths_of_files([("a.txt", essay), ("b.md", "one word")]) == [13, 3]
    assert lengths_of_files([("counts.txt", "128\n256\n")]) == [128, 256]
    assert lengths_of_files([("rows.csv", "one two\nthree four\n")]) == [3, 3]


def test_what_rules_a_candidate_out_is_said() -> None:
    ranked = rank(measurements(), Wanted([16_384], 100.0, 100.0, 2), KNOWN)
    assert "times too slow" in ranked[-1].misses
    assert any("MB too much" in candidate.misses for candidate in ranked)


def test_a_service_needs_more_than_its_networks() -> None:
    plain = rank(measurements(), Wanted([512], None, None, 2), KNOWN)[0]
    whole = rank(measurements(), Wanted([512], None, None, 2), KNOWN, 9e7)[0]
    assert whole.memory_mb == pytest.approx(plain.memory_mb + 90)
