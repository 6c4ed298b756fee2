"""Passages and what speaks for a label."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.text.evidence import combine, cut_passages, strongest, weigh
from tests.support.growth import grows_no_faster_than_its_input
from tests.support.serving import tokenizer


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="ab. \n。🧬", max_size=3000))
def test_passages_cover_the_text_and_cut_no_word(text: str) -> None:
    starts = cut_passages(text)
    if not text:
        assert len(starts) == 0
        return
    assert starts[0] == 0
    assert (np.diff(starts) > 0).all()
    for start in starts[1:]:
        before = text[start - 1]
        unbroken = not any(c.isspace() for c in text[max(0, start - 400) : start])
        assert before.isspace() or before == "。" or unbroken


def _all_sentences_first(text: str) -> list[int]:
    """The same passages by way of all sentence ends at once: plain, but quadratic on long runs."""
    ends = [m.end() for m in re.finditer(r"[.!?…]+[\"'”’)\]]*\s|[。！？]|\n\s*\n", text)]
    starts, start = [0], 0
    for end in (*ends, len(text)):
        while end - start > 400:
            spaces = [i for i in range(start, start + 400) if text[i].isspace()]
            later = [i for i in range(start + 400, min(end, start + 1000)) if text[i].isspace()]
            if spaces and spaces[-1] > start:
                start = spaces[-1] + 1
            else:
                start = later[0] + 1 if later else min(end, start + 1000)
            starts.append(start)
        if end - start >= 40 and end < len(text):
            start = end
            starts.append(start)
    return sorted({position for position in starts if position < len(text)})


_WORDS = st.text("abcdefgh", min_size=1, max_size=12)
_ENDS = st.sampled_from([". ", "! ", '?" ', "\n\n", "... ", "。", ".\n\n", ".) ", " ", "…’ ", "\n"])


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.lists(_WORDS, max_size=60), _ENDS), max_size=30))
def test_passages_are_those_that_all_sentence_ends_give(parts: list[tuple[list[str], str]]) -> None:
    text = "".join(" ".join(words) + end for words, end in parts)
    assert cut_passages(text).tolist() == _all_sentences_first(text)


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet="a.\"' \n。…", max_size=1500))
def test_so_they_are_where_there_are_hardly_any_words(text: str) -> None:
    assert cut_passages(text).tolist() == _all_sentences_first(text)


@pytest.mark.parametrize(
    "unit",
    [".", '."', '.."""', "\n", "\n ", "\n\t", "'", "a.", "。", " ", "a", "…’\n", "word. "],
)
def test_cutting_takes_time_in_proportion(unit: str) -> None:
    grows_no_faster_than_its_input(
        lambda size: (unit * size)[:size], cut_passages, 100_000 if len(unit) > 1 else 200_000
    )


def test_passages_are_of_a_readable_length() -> None:
    text = "A short one. " * 50 + "word " * 500 + "x" * 5000
    starts = [*cut_passages(text), len(text)]
    assert max(np.diff(starts)) <= 1000
    assert len(starts) > 20


def test_weights_add_up_to_the_contributions() -> None:
    text = "First sentence about neurons and cells here. Second sentence about stars and plants."
    encoding = tokenizer().encode(text)
    ends = np.array([end for _, end in encoding.offsets])
    contributions = np.random.default_rng(0).normal(size=(len(ends), 3)).astype(np.float32)
    starts = cut_passages(text)
    shares = weigh(starts, ends, contributions)
    assert len(starts) == 2
    assert shares.first == 0
    first = ends <= text.index("Second")
    expected = [contributions[first].sum(axis=0), contributions[~first].sum(axis=0)]
    np.testing.assert_allclose(shares.of_logits, expected, rtol=1e-5)


def test_a_window_keeps_only_the_passages_it_touches() -> None:
    starts = np.arange(0, 1000, 10)
    ends = np.array([505, 510, 511, 538])
    ones = np.ones((4, 2), dtype=np.float32)
    shares = weigh(starts, ends, ones)
    assert shares.first == 50
    np.testing.assert_array_equal(shares.of_logits[:, 0], [2, 1, 0, 1])
    earlier = weigh(starts, np.array([3, 8]), ones[:2])
    total = combine(len(starts), [earlier, shares], [0.5, 0.25], 1)
    assert {index: total[index] for index in np.flatnonzero(total)} == {
        0: 1.0,
        50: 0.5,
        51: 0.25,
        53: 0.25,
    }


def test_only_what_speaks_for_the_label_is_evidence() -> None:
    text = "One sentence that is long enough for itself. Two sentences make up this little text."
    starts = cut_passages(text)
    found = strongest(text, starts, np.array([-0.5, 0.25]), 5)
    assert found == [(45, len(text), 0.25)]
    assert text[45:] == "Two sentences make up this little text."
