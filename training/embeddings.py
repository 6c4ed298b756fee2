"""Token embeddings from the statistics of the corpus: which tokens stand near which."""

from __future__ import annotations

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.utils.extmath import randomized_svd
from threadpoolctl import threadpool_limits

from training.storage import Array, Cache
from training.tokenizing import Tokens

_REACH = 5  # tokens on either side that count as near, each by 1 / distance
_HEAD = 4000  # tokens of a document that are counted
_POWER = 0.75  # flattens the frequencies of neighbours
_GROUP = 500_000  # tokens counted at a time


def make_embeddings(
    tokens: Tokens,
    rows: NDArray[np.int64],
    vocab_size: int,
    width: int,
    seed: int,
    cache: Cache,
    key: tuple[object, ...],
) -> Array:
    """(vocab_size, width): the truncated SVD of positive pointwise mutual information."""

    def make() -> Array:
        with threadpool_limits(limits=1):
            return _factorise(_neighbours(tokens, rows, vocab_size), width, seed)

    return cache.array("embeddings", (*key, width, seed, _REACH, _HEAD, _POWER), make)


def _neighbours(
    tokens: Tokens, rows: NDArray[np.int64], vocab_size: int
) -> scipy.sparse.csr_matrix:
    """How often each token stands near each other one, weighted by nearness."""
    total = scipy.sparse.csr_matrix((vocab_size, vocab_size), dtype=np.float32)
    gap = np.full(_REACH, -1)  # keeps documents apart
    group: list[NDArray[np.int64]] = []
    size = 0
    for index, row in enumerate(rows):
        piece = tokens.document(int(row), 0, _HEAD)
        group += [piece, gap]
        size += len(piece)
        if size >= _GROUP or index == len(rows) - 1:
            total = total + _count(np.concatenate(group), vocab_size)
            group, size = [], 0
    return total + total.T


def _count(stream: NDArray[np.int64], vocab_size: int) -> scipy.sparse.csr_matrix:
    pairs = scipy.sparse.csr_matrix((vocab_size, vocab_size), dtype=np.float32)
    for distance in range(1, _REACH + 1):
        left, right = stream[:-distance], stream[distance:]
        real = (left >= 0) & (right >= 0)
        weights = np.full(np.count_nonzero(real), 1 / distance, dtype=np.float32)
        pairs = pairs + scipy.sparse.csr_matrix(
            (weights, (left[real], right[real])), shape=(vocab_size, vocab_size)
        )
    return pairs


def _factorise(counts: scipy.sparse.csr_matrix, width: int, seed: int) -> Array:
    often = np.asarray(counts.sum(axis=1)).ravel()  # (vocab_size,)
    context = often**_POWER
    context /= max(context.sum(), 1e-12)
    information = counts.tocoo()
    expected = often[information.row] * context[information.col]
    information.data = np.log(np.maximum(information.data / np.maximum(expected, 1e-12), 1.0))
    information = information.tocsr().astype(np.float32)
    rank = min(width, counts.shape[0])
    left, strength, _ = randomized_svd(information, rank, n_iter=3, random_state=seed)
    found = left * np.sqrt(strength)  # (vocab_size, rank)
    found -= found.mean(axis=0)
    found /= max(float(np.sqrt(np.mean(found**2))), 1e-12)
    embeddings = np.zeros((counts.shape[0], width), np.float32)
    embeddings[:, :rank] = found
    return embeddings
