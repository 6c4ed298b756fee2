"""The first stage: the best bag of tokens, found by logistic regression on damped counts.

With blocks that start as the identity and repeats damped, the network computes
`bias + head · (Σ weight · embedding)` over a document's distinct tokens, weights summing to 1.
Any linear classifier of such weights is therefore a choice of embeddings and head, as long as
there are no more labels than dimensions. The best one is a convex problem, solved in seconds.

A regression knows its own training documents by heart, and blocks that are trained on top of it
would find nothing left to learn. So while the blocks are trained, each document is read with
embeddings from a fit that left its fold out; what is kept in the end is the fit to all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold
from torch import Tensor

from training.metrics import log_loss
from training.regression import fit_regression, linear_parts
from training.storage import Array, Cache
from training.tokenizing import Tokens

Ints = NDArray[np.int64]

_STRENGTHS = (3.0, 10.0, 30.0, 100.0)  # C, the inverse of the regularisation; valid chooses
_FOLDS = 5


@dataclass(frozen=True)
class Bag:
    """What the network starts from.

    embeddings   from the fit to all training documents
    folded       from the fits that leave a fold out, one after the other
    folds        which of them each training document is read with
    """

    embeddings: Tensor  # (vocab, width)
    weight: Tensor  # (labels, width)
    bias: Tensor  # (labels,)
    folded: Tensor  # (folds * vocab, width)
    folds: Ints  # (training documents,)


def make_bag(
    tokens: Tokens,
    train: Ints,
    valid: Ints,
    targets: Ints,
    embeddings: Array,
    seed: int,
    cache: Cache,
    key: tuple[object, ...],
) -> Bag:
    """Fit on train, choose the strength by the loss on valid, and write it as a network."""
    vocab, folds = len(embeddings), fold_numbers(targets[train], seed)

    def make() -> Array:
        return _fit(tokens, train, valid, targets, folds, vocab, seed)

    packed = cache.array("bag", (*key, seed, _STRENGTHS, _FOLDS), make)  # (1 + folds, labels, …)
    whole, *parts = (np.array(fit[:, :vocab]) for fit in packed)
    basis, scale = _basis(whole, embeddings.shape[1])
    rank = basis.shape[1]
    head = np.zeros((len(whole), embeddings.shape[1]), np.float32)
    head[:, :rank] = basis * scale

    def words(weights: Array) -> Array:
        """Embeddings whose products with the head are the weights; the rest as given."""
        kept = embeddings[:, : embeddings.shape[1] - rank]
        return np.concatenate([weights.T @ basis / scale, kept], axis=1).astype(np.float32)

    return Bag(
        torch.from_numpy(words(whole)),
        torch.from_numpy(head),
        torch.from_numpy(np.array(packed[0, :, vocab])),
        torch.from_numpy(np.concatenate([words(part) for part in parts])),
        folds,
    )


def fold_numbers(targets: Ints, seed: int) -> Ints:
    """A fold for each document, classes spread evenly; all 0 where a class is too small."""
    count = min(_FOLDS, int(np.bincount(targets).min()))
    numbers = np.zeros(len(targets), dtype=np.int64)
    if count > 1:
        splitter = StratifiedKFold(count, shuffle=True, random_state=seed)
        for number, (_, fold) in enumerate(splitter.split(targets, targets)):
            numbers[fold] = number
    return numbers


def _fit(
    tokens: Tokens,
    train: Ints,
    valid: Ints,
    targets: Ints,
    folds: Ints,
    vocab: int,
    seed: int,
) -> Array:
    """Weights of damped shares and bias: of the fit to all, then of those without each fold."""
    features = damped_shares(tokens, train, vocab)
    occurs = np.asarray((features > 0).sum(axis=0)).ravel()
    rarity = np.log((len(train) + 1) / (occurs + 1)) + 1  # (vocab,)
    norms = (features @ scipy.sparse.diags(rarity)).power(2).sum(axis=1)
    rarity /= max(float(np.sqrt(norms.mean())), 1e-12)  # documents of length 1 on average
    weighted = (features @ scipy.sparse.diags(rarity)).tocsr()
    checked = damped_shares(tokens, valid, vocab) @ scipy.sparse.diags(rarity)

    def fit(rows: Ints, strength: float) -> tuple[Array, Array]:
        return linear_parts(fit_regression(weighted[rows], targets[train][rows], strength, seed))

    every = np.arange(len(train))
    fits = {strength: fit(every, strength) for strength in _STRENGTHS}
    losses = {c: log_loss(checked @ w.T + b, targets[valid]) for c, (w, b) in fits.items()}
    strength = min(_STRENGTHS, key=lambda c: losses[c])
    found = [fits[strength]]
    if folds.any():
        found += [fit(every[folds != n], strength) for n in range(int(folds.max()) + 1)]
    else:
        found += found
    return np.stack([np.concatenate([w * rarity, b[:, None]], axis=1) for w, b in found]).astype(
        np.float32
    )


def damped_shares(tokens: Tokens, rows: Ints, vocab: int) -> scipy.sparse.csr_matrix:
    """(documents, vocab): each distinct token's 1 + log of its count, as shares of the sum."""
    starts, columns, values = [0], [], []
    for row in rows:
        found, often = np.unique(tokens.document(int(row)), return_counts=True)
        damped = 1 + np.log(often)
        columns.append(found)
        values.append(damped / max(damped.sum(), 1.0))
        starts.append(starts[-1] + len(found))
    return scipy.sparse.csr_matrix(
        (np.concatenate(values), np.concatenate(columns), starts), shape=(len(rows), vocab)
    )


def _basis(weights: Array, width: int) -> tuple[Array, float]:
    """Orthogonal directions (labels, rank) that hold the weights, and the scale of their use."""
    left, strength, _ = np.linalg.svd(weights, full_matrices=False)
    used = int(np.count_nonzero(strength > 1e-5 * strength[0]))  # two labels use one direction
    basis = left[:, : min(used, width)]
    return basis, max(float(np.sqrt(np.mean((weights.T @ basis) ** 2))), 1e-12)
