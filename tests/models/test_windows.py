"""Windows cover a document, keep to the limit, and end with whole words."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from models.windows import cut_windows, head_and_tail, window_weights


@given(
    starts=st.lists(st.booleans(), min_size=33, max_size=400),
    limit=st.integers(8, 32),
    overlap=st.integers(0, 4),
)
def test_windows_cover_everything_within_the_limit(
    starts: list[bool], limit: int, overlap: int
) -> None:
    windows = cut_windows(len(starts), starts.__getitem__, limit, overlap)
    assert windows[0][0] == 0
    assert windows[-1][1] == len(starts)
    for (start, end), (following, _) in itertools.pairwise(windows):
        assert start < following <= end
    assert all(0 < end - start <= limit for start, end in windows)


def test_windows_begin_and_end_where_words_begin() -> None:
    windows = cut_windows(300, lambda token: token % 7 == 0, 100, 20)
    assert all(start % 7 == 0 for start, _ in windows)
    assert all(end % 7 == 0 for _, end in windows[:-1])
    sizes = [end - start for start, end in windows]
    assert max(sizes) - min(sizes) <= 28  # of about equal length


def test_a_text_without_words_is_cut_anywhere() -> None:
    windows = cut_windows(1000, lambda _: False, 100, 10)
    assert len(windows) == 11
    assert {start - end for (_, end), (start, _) in itertools.pairwise(windows)} == {-10}


@given(st.integers(0, 500), st.integers(1, 64))
def test_head_and_tail_fill_what_fits_and_do_not_overlap(total: int, limit: int) -> None:
    head, tail = head_and_tail(total, limit)
    assert 0 <= head <= tail <= max(total, head)
    if total > limit:
        assert head == limit // 4
        assert head + total - tail == limit


def test_windows_weigh_by_tokens_or_the_surest_stands_for_all() -> None:
    assert window_weights([30, 10], [0.5, 0.9], "mean") == [0.75, 0.25]
    assert window_weights([30, 10], [0.5, 0.9], "strongest") == [0.0, 1.0]
