"""Tokenizing, and windows of whole words."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.errors import EmptyText, TooManyTokens
from service.text import tokenizer as reading
from service.text.tokenizer import Reader, cut_windows
from tests.support.serving import tokenizer

WORDS = st.text(alphabet="aàb한🧬\u0645.! \n", min_size=1, max_size=400)


def reader(limit: int = 64, overlap: int = 16) -> Reader:
    """A reader with a small limit."""
    made = Reader(tokenizer(), limit, overlap)
    made.speed_up()
    return made


def test_a_document_that_fits_has_one_window() -> None:
    read = reader().read("the larvae were fed")
    assert [(w.start, w.end) for w in read.windows] == [(0, read.total)]
    assert read.used == read.total
    assert not read.truncated
    assert read.ends is None


def test_offsets_change_nothing_but_their_presence() -> None:
    text = "Naïve larvae 🧬 were fed. " * 3
    plain, with_ends = reader(500).read(text), reader(500).read(text, offsets=True)
    np.testing.assert_array_equal(plain.ids, with_ends.ids)
    assert with_ends.ends is not None
    assert with_ends.ends[-1] == len(text)


def test_overflow() -> None:
    text = "word " * 100
    cut = reader().read(text, "truncate")
    assert (cut.used, len(cut.windows), cut.truncated) == (64, 1, True)
    with pytest.raises(TooManyTokens, match=f"{cut.total} tokens; the model reads 64"):
        reader().read(text, "error")
    whole = reader().read(text, "window")
    assert whole.used == whole.total == cut.total


@pytest.mark.parametrize("offsets", [False, True])
def test_head_and_tail_are_read_as_one_piece(offsets: bool) -> None:
    text = " ".join(f"word{number}" for number in range(200))
    whole, both = reader().read(text), reader().read(text, "head_tail", offsets=offsets)
    assert (both.used, len(both.windows), both.truncated, both.total) == (64, 1, True, whole.total)
    assert both.ids.tolist() == [*whole.ids[:16], *whole.ids[-48:]]
    if both.ends is not None:
        assert len(both.ends) == 64
        assert both.ends[-1] == len(text)
    short = reader().read("two words", "head_tail")
    assert short.used == short.total


@pytest.mark.parametrize("text", ["", "   ", "\n\u2003"])
def test_white_space_is_no_text(text: str) -> None:
    with pytest.raises(EmptyText):
        reader().read(text)


@settings(max_examples=200, deadline=None)
@given(WORDS, st.integers(4, 40), st.integers(0, 20))
def test_windows_cover_everything_and_hold_whole_words(text: str, limit: int, overlap: int) -> None:
    encoding = tokenizer().encode(text)
    spans = np.array(encoding.offsets, dtype=np.int64).reshape(-1, 2)
    if len(spans) <= limit:
        return
    windows = cut_windows(text, spans, limit, min(overlap, limit // 2))
    assert windows[0].start == 0
    assert windows[-1].end == len(spans)
    for window in windows:
        assert 0 < len(window) <= limit
    for before, after in itertools.pairwise(windows):
        assert before.start < after.start <= before.end


def test_windows_begin_and_end_at_words_where_there_are_any() -> None:
    text = "several longer words stand here " * 60
    spans = np.array(tokenizer().encode(text).offsets)
    windows = cut_windows(text, spans, 64, 16)
    assert len(windows) > 3
    for window in windows[1:]:
        begin = spans[window.start, 0]
        assert text[begin].isspace() or text[begin - 1].isspace()
    for window in windows[:-1]:
        end = spans[window.end, 0]
        assert text[end].isspace() or text[end - 1].isspace()


def test_windows_are_of_about_equal_length() -> None:
    read = reader(64, 16).read("word " * 33)
    lengths = [len(window) for window in read.windows]
    assert len(lengths) == reader(64, 16).window_count(read.total)
    assert max(lengths) - min(lengths) <= 16


def test_a_text_in_parts_reads_like_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "Naïve larvae 🧬 were fed on sugar.\nTwo  spaces, and\ttabs. " * 30
    whole = reader(10_000).read(text, offsets=True)
    monkeypatch.setattr(reading, "_PART", 100)
    parts = reader(10_000).read(text, offsets=True)
    np.testing.assert_array_equal(parts.ids, whole.ids)
    np.testing.assert_array_equal(parts.ends, whole.ends)
    fast = reader(10_000).read(text)
    np.testing.assert_array_equal(fast.ids, whole.ids)


def test_guesses_learn_from_what_was_read() -> None:
    learner = reader(10_000)
    text = "the larvae were fed on sugar " * 40
    for _ in range(60):
        total = learner.read(text).total
    assert learner.guess(text) == pytest.approx(total, rel=0.05)
    assert learner.seconds(text) > 0
