"""What is reached without attention: what stands above all of these shows attention at work.

The network without attention and the ∞-former without memory are trained like a mechanism; the
rest is counted or fitted here.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from training.arena.listops import ListOps
from training.arena.tasks import Examples, Ints, Stage, Task, fixed

_FITTED, _TESTED = 10_000, 2000
_MOST_TOKENS = 2_000_000
_STEPS = 50  # of the fit; what is not found by then is not worth more


def controls_of(task: Task, stage: Stage) -> dict[str, float]:
    """Accuracy on the test of each control."""
    count = max(1000, min(_FITTED, _MOST_TOKENS // stage.length))
    train = fixed(task, stage, "train", count)
    test = fixed(task, stage, "test", min(_TESTED, count))
    named: dict[str, Callable[[], Ints]] = {
        "majority": lambda: _majority(train, test),
        "bag of tokens and pairs": lambda: _bag(train, test, task.vocab_size),
    }
    if isinstance(task, ListOps):
        named["root operator"] = lambda: _by_first_token(train, test)
    return {name: float(np.mean(guess() == test.targets)) for name, guess in named.items()}


def _majority(train: Examples, test: Examples) -> Ints:
    return np.full(len(test.ids), np.bincount(train.targets).argmax())


def _by_first_token(train: Examples, test: Examples) -> Ints:
    """The most frequent target of the documents that begin alike."""
    best: Mapping[int, int] = {
        int(token): int(np.bincount(train.targets[train.ids[:, 0] == token]).argmax())
        for token in np.unique(train.ids[:, 0])
    }
    overall = int(np.bincount(train.targets).argmax())
    return np.array([best.get(int(token), overall) for token in test.ids[:, 0]])


def _bag(train: Examples, test: Examples, vocab_size: int) -> Ints:
    """Logistic regression on how often each token and each pair of neighbours stands there."""
    model = LogisticRegression(C=1.0, max_iter=_STEPS, tol=1e-3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(_counts(train, vocab_size), train.targets)
    guess: NDArray[np.int64] = model.predict(_counts(test, vocab_size))
    return guess


def _counts(examples: Examples, vocab_size: int) -> csr_matrix:
    """log(1 + count) of tokens and of pairs: (count, vocab_size + vocab_size²)."""
    ids, n = examples.ids, examples.ids.shape[1]
    real = np.arange(n) < examples.lengths[:, None]
    row = np.broadcast_to(np.arange(len(ids))[:, None], ids.shape)
    pairs = vocab_size + ids[:, :-1] * vocab_size + ids[:, 1:]
    rows = np.concatenate([row[real], row[:, 1:][real[:, 1:]]])
    columns = np.concatenate([ids[real], pairs[real[:, 1:]]])
    shape = (len(ids), vocab_size + vocab_size**2)
    counts = csr_matrix((np.ones(len(rows)), (rows, columns)), shape=shape)
    counts.sum_duplicates()
    counts.data = np.log1p(counts.data)
    return counts
