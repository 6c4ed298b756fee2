"""Windows of a document that is longer than its network reads at once. Free of torch and NumPy."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

#: Tokens that neighbouring windows share, unless a request says otherwise.
OVERLAP = 256
_NEAR = 64  # tokens looked at for the beginning of a word


def count_windows(total: int, limit: int, overlap: int) -> tuple[int, int]:
    """How many windows a document longer than `limit` needs, and about the tokens of each."""
    count = math.ceil((total - overlap) / (limit - overlap))
    return count, math.ceil((total + (count - 1) * overlap) / count)  # at most `limit`


def cut_windows(
    total: int, begins_word: Callable[[int], bool], limit: int, overlap: int
) -> list[tuple[int, int]]:
    """First and last token (exclusive) of overlapping windows of about equal length.

    Windows begin and end with whole words where `begins_word`, given the number of a token,
    finds the beginning of one nearby; none has more than `limit` tokens.
    """
    _, size = count_windows(total, limit, overlap)
    windows = []
    start = 0
    while total - start > limit:
        end = _word_start(total, begins_word, start + 1, start + size, start + limit)
        windows.append((start, end))
        start = _word_start(total, begins_word, start + 1, max(end - overlap, start + 1), end)
    return [*windows, (start, total)]


def _word_start(
    total: int, begins_word: Callable[[int], bool], first: int, token: int, last: int
) -> int:
    """The token from `first` to `last` that begins a word: after `token`, before it, or it."""
    after = range(token, min(last, token + _NEAR) + 1)
    before = range(token - 1, max(token - _NEAR, first - 1), -1)
    for index in itertools.chain(after, before):
        if index >= total or begins_word(index):
            return index
    return token
