"""Batches hold every document once, of like length; pieces are what the document says."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from training.batches import group_by_length, pad, random_piece
from training.tokenizing import Tokens


@given(
    lengths=st.lists(st.integers(0, 300), min_size=1, max_size=80),
    budget=st.integers(1, 1000),
    seed=st.none() | st.integers(0, 3),
)
def test_groups_hold_every_document_once_within_the_budget(
    lengths: list[int], budget: int, seed: int | None
) -> None:
    sizes = np.array(lengths)
    rng = None if seed is None else np.random.default_rng(seed)
    groups = group_by_length(sizes, budget, rng)
    assert sorted(np.concatenate(groups).tolist()) == list(range(len(lengths)))
    for group in groups:
        assert len(group) == 1 or max(1, sizes[group].max()) * len(group) <= budget


def test_without_a_generator_the_longest_come_first() -> None:
    groups = group_by_length(np.array([5, 50, 20, 7]), 50)
    assert [group.tolist() for group in groups] == [[1], [2, 3], [0]]


def tokens() -> Tokens:
    return Tokens(np.arange(100, dtype=np.uint16), np.array([0, 10, 100]))


@given(crop=st.integers(1, 120), seed=st.integers(0, 20))
def test_a_piece_is_a_run_of_the_document(crop: int, seed: int) -> None:
    piece = random_piece(tokens(), 1, crop, np.random.default_rng(seed))
    assert len(piece) == min(crop, 90)
    assert np.array_equal(piece, np.arange(piece[0], piece[0] + len(piece)))
    assert piece[0] >= 10


def test_padding_is_on_the_right() -> None:
    ids, lengths = pad([np.array([3, 4]), np.array([], dtype=np.int64), np.array([5])])
    assert ids.tolist() == [[3, 4], [0, 0], [5, 0]]
    assert lengths.tolist() == [2, 0, 1]
    assert ids.dtype == lengths.dtype == torch.int64
