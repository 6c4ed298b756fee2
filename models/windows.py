"""Documents longer than a network reads at once: what of them is read, and how it is merged.

Training, export and the service all read documents by these functions. Free of torch and NumPy.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Final, Literal, get_args

#: What to do with a document that is too long: windows over all of it, its beginning, its
#: beginning and end joined, or refuse it.
Overflow = Literal["window", "truncate", "head_tail", "error"]
OVERFLOWS: Final[tuple[str, ...]] = get_args(Overflow)
#: What stands for a document read in windows: the mean of their logits, weighted by tokens, or the
#: logits of the window that is surest of its label.
Merge = Literal["mean", "strongest"]
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


def head_and_tail(total: int, limit: int) -> tuple[int, int]:
    """Where the beginning ends and the end begins that are read of a longer document.

    A quarter of what fits comes from the beginning, the rest from the end.
    """
    head = min(total, limit // 4)
    return head, max(head, total - (limit - head))


def window_weights(sizes: Sequence[int], certainty: Sequence[float], merge: Merge) -> list[float]:
    """What each window's logits weigh in the document's; `certainty` is its highest probability."""
    if merge == "mean":
        total = max(1, sum(sizes))
        return [size / total for size in sizes]
    best = max(range(len(sizes)), key=certainty.__getitem__)
    return [float(index == best) for index in range(len(sizes))]


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
