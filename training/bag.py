"""The first stage: the best bag of tokens and pairs, by logistic regression on damped counts.

With blocks that start as the identity and repeats damped, the network computes
`bias + head · (Σ weight · vector)` over a document's tokens, its pairs of neighbours and the tokens
of its opening, the weights of each kind summing to 1. Any linear classifier of such weights is
therefore a choice of vectors and head, as long as there are no more labels than dimensions. The
best one is a convex problem, solved in seconds to minutes.

A regression knows its own training documents by heart, and blocks that are trained on top of it
would find nothing left to learn. So while the blocks are trained, each document is read with
vectors from a fit that left its fold out; what is kept in the end is the fit to all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold
from torch import Tensor

from models.config import ModelConfig
from models.inputs import PAIR_FACTOR
from models.progress import ProgressBar
from training.metrics import log_loss
from training.regression import fit_regression, linear_parts
from training.storage import Array, Cache
from training.tokenizing import Tokens

Ints = NDArray[np.int64]

_STRENGTHS = (10.0, 30.0, 100.0)  # C, the inverse of the regularisation; valid chooses
_LEAST_SPREAD = 0.3  # of a feature that stands alike in all labels' documents
_OPENING = 0.5  # how freely the opening's tokens may be used, relative to tokens and pairs
_FOLDS = 5


@dataclass(frozen=True)
class Bag:
    """What the network starts from.

    whole    from the fit to all training documents
    folded   from the fits that leave a fold out, one under the other
    folds    which of them each training document is read with
    logits   what the bag says of each training document, whole, by the fit that left it out
    """

    whole: Tables
    folded: Tables
    folds: Ints  # (training documents,)
    logits: Array  # (training documents, labels)
    weight: Tensor  # (labels, width), of the head
    bias: Tensor  # (labels,)


class Tables(NamedTuple):
    """The vectors of tokens, of pairs, and of tokens in the opening."""

    single: Tensor  # (vocab, width)
    pairs: Tensor  # (pairs, pair_width)
    opening: Tensor  # (vocab or 0, pair_width)


def make_bag(
    tokens: Tokens,
    train: Ints,
    valid: Ints,
    targets: Ints,
    embeddings: Array,
    config: ModelConfig,
    seed: int,
    cache: Cache,
    key: tuple[object, ...],
) -> Bag:
    """Fit on train, choose the strength by the loss on valid, and write it as a network."""
    vocab, folds = config.vocab_size, fold_numbers(targets[train], seed)

    def make() -> Array:
        return _fit(tokens, train, valid, targets, folds, config, seed)

    key = (*key, seed, _STRENGTHS, _FOLDS, _LEAST_SPREAD, config.pairs, PAIR_FACTOR)
    if config.opening:
        key = (*key, config.opening, _OPENING)
    packed = cache.array("bag", key, make)  # (1 + folds, labels, features + 1)
    fits = [np.array(fit[:, :-1]) for fit in packed]
    basis, scale = _basis(fits[0], config.pair_width or config.width)
    rank = basis.shape[1]
    head = np.zeros((len(basis), config.width), np.float32)
    head[:, :rank] = basis * scale

    def tables(weights: Array) -> tuple[Array, Array, Array]:
        """Vectors whose products with the head are the weights; other entries as given."""
        vectors = (weights.T @ basis / scale).astype(np.float32)  # (features, rank)
        kept = embeddings[:, : config.width - rank]
        single = np.concatenate([vectors[:vocab], kept], axis=1)
        short = np.pad(vectors[vocab:], [(0, 0), (0, config.pair_width - rank)])
        return single, short[: config.pairs], short[config.pairs :]

    def stacked(some: Sequence[Array]) -> Tables:
        parts = zip(*(tables(weights) for weights in some), strict=True)
        return Tables(*(torch.from_numpy(np.concatenate(part)) for part in parts))

    bias = np.array(packed[0, :, -1])

    def say() -> Array:
        shares = damped_shares(tokens, train, config)
        said = [shares[folds == number] @ fit.T for number, fit in enumerate(fits[1:])]
        logits = np.empty((len(train), len(bias)), np.float32)
        for number, rows in enumerate(said):
            logits[folds == number] = rows + bias
        return logits

    return Bag(
        stacked(fits[:1]),
        stacked(fits[1:]),
        folds,
        cache.array("bag-logits", key, say),
        torch.from_numpy(head),
        torch.from_numpy(bias),
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
    config: ModelConfig,
    seed: int,
) -> Array:
    """Weights and bias of the fit to all documents, then of each fit without one fold."""
    features, labels = damped_shares(tokens, train, config), targets[train]
    checked = damped_shares(tokens, valid, config)

    last_fold = int(folds.max())
    bar = ProgressBar("fitting the bag of tokens", len(_STRENGTHS) + last_fold + 1, "fit")

    def fit(rows: Ints, strength: float) -> tuple[Array, Array]:
        scale = _freedom(features[rows], labels[rows], config)
        scaled = (features[rows] @ scipy.sparse.diags(scale)).tocsr().astype(np.float32)
        weights, bias = linear_parts(fit_regression(scaled, labels[rows], strength, seed))
        bar.add(1)
        return weights * scale, bias

    every = np.arange(len(train))
    fits = {strength: fit(every, strength) for strength in _STRENGTHS}
    losses = {c: log_loss(checked @ w.T + b, targets[valid]) for c, (w, b) in fits.items()}
    strength = min(_STRENGTHS, key=lambda c: losses[c])
    found = [fits[strength]]
    if folds.any():
        found += [fit(every[folds != n], strength) for n in range(last_fold + 1)]
    else:
        found += found
    bar.close()
    return np.stack([np.concatenate([w, b[:, None]], axis=1) for w, b in found]).astype(np.float32)


def _freedom(features: scipy.sparse.csr_matrix, targets: Ints, config: ModelConfig) -> Array:
    """How freely the regression may use each feature; the opening's are a document of their own."""
    whole = config.vocab_size + config.pairs
    found = [feature_scales(features[:, :whole], targets)]
    if config.opening:
        found.append(_OPENING * feature_scales(features[:, whole:], targets))
    return np.concatenate(found)


def feature_scales(features: scipy.sparse.csr_matrix, targets: Ints) -> Array:
    """How freely the regression may use each feature: (features,).

    More freely what stands in few documents, and what stands more in some labels' documents
    than in others': the logarithm of that ratio, label against the rest, as naive Bayes has it.
    Scaled so that documents have length 1 on average.
    """
    labels = np.eye(int(targets.max()) + 1, dtype=np.float32)[targets]  # (documents, labels)
    unit = max(float(features.sum()) / max(features.nnz, 1), 1e-12)
    inside = (features.T @ labels).T / unit  # (labels, features)
    outside = inside.sum(axis=0) - inside
    ratio = np.log(_smoothed(inside) / _smoothed(outside))
    spread = np.sqrt(labels.mean(axis=0) @ ratio**2)
    occurs = np.asarray((features > 0).sum(axis=0)).ravel()
    rarity = np.log((len(targets) + 1) / (occurs + 1)) + 1
    scale = (spread + _LEAST_SPREAD) * rarity
    norms = (features @ scipy.sparse.diags(scale)).power(2).sum(axis=1)
    return np.asarray(scale / max(float(np.sqrt(norms.mean())), 1e-12))


def _smoothed(counts: Array) -> Array:
    """Shares of each row, as if everything had been seen once more."""
    return np.asarray((counts + 1) / (counts + 1).sum(axis=1, keepdims=True))


def damped_shares(tokens: Tokens, documents: Ints, config: ModelConfig) -> scipy.sparse.csr_matrix:
    """How much of a document each token, pair and token of the opening is: (documents, features).

    As `TokenVectors` weighs them.
    """
    vocab, pairs = config.vocab_size, config.pairs
    starts, columns, values = [0], [], []
    for document in documents:
        ids = tokens.document(int(document))
        found = [_shares(0, ids, ids)]
        if pairs and len(ids) > 1:
            hashed = ids[:-1] * PAIR_FACTOR + ids[1:]
            found.append(_shares(vocab, hashed % pairs, hashed % vocab))
        if config.opening:
            opening = ids[: config.opening]
            found.append(_shares(vocab + pairs, opening, opening))
        for column, value in found:
            columns.append(column)
            values.append(value.astype(np.float32))
        starts.append(starts[-1] + sum(len(column) for column, _ in found))
    return scipy.sparse.csr_matrix(
        (np.concatenate(values), np.concatenate(columns), starts),
        shape=(len(documents), vocab + pairs + (vocab if config.opening else 0)),
    )


def _shares(first: int, rows: Ints, counted: Ints) -> tuple[Ints, Array]:
    """Columns from `first` on for the distinct rows, and the damped share of each.

    Repeats are counted in `counted`.
    """
    _, place, often = np.unique(counted, return_inverse=True, return_counts=True)
    damped = ((1 + np.log(often)) / often)[place]
    found, place = np.unique(rows, return_inverse=True)
    return first + found, np.bincount(place, damped / max(damped.sum(), 1e-6), len(found))


def _basis(weights: Array, width: int) -> tuple[Array, float]:
    """Orthogonal directions (labels, rank) that hold the weights, and the scale of their use."""
    left, strength, _ = np.linalg.svd(weights, full_matrices=False)
    used = int(np.count_nonzero(strength > 1e-5 * strength[0]))  # two labels use one direction
    basis = left[:, : min(used, width)]
    return basis, max(float(np.sqrt(np.mean((weights.T @ basis) ** 2))), 1e-12)
