"""The first stage: embeddings and head trained on counts of tokens, which is fast.

With blocks that start as the identity, the network starts out as exactly this bag of tokens.
"""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from training.averaging import Average
from training.recipe import BagRecipe
from training.storage import Array, Cache
from training.tokenizing import Tokens


def make_bag(
    tokens: Tokens,
    rows: NDArray[np.int64],
    aims: Array,
    embeddings: Array,
    recipe: BagRecipe,
    seed: int,
    cache: Cache,
    key: tuple[object, ...],
) -> tuple[Tensor, Tensor, Tensor]:
    """Embeddings (vocab, width), head weights (labels, width) and head bias (labels,)."""

    def make() -> Array:
        counts = _count(tokens, rows, len(embeddings))
        return _train(counts, aims, np.array(embeddings), recipe, seed)

    packed = cache.array("bag", (*key, asdict(recipe), seed), make)
    vocab, width = embeddings.shape
    head = torch.from_numpy(packed[vocab:].copy())  # (labels, width + 1)
    return torch.from_numpy(packed[:vocab, :width].copy()), head[:, :width], head[:, width]


def _count(tokens: Tokens, rows: NDArray[np.int64], vocab: int) -> scipy.sparse.csr_matrix:
    """How often each document holds each token: (documents, vocab)."""
    starts, columns, values = [0], [], []
    for row in rows:
        found, often = np.unique(tokens.document(int(row)), return_counts=True)
        columns.append(found)
        values.append(often)
        starts.append(starts[-1] + len(found))
    return scipy.sparse.csr_matrix(
        (np.concatenate(values), np.concatenate(columns), starts), shape=(len(rows), vocab)
    )


def _train(
    counts: scipy.sparse.csr_matrix,
    aims: Array,
    embeddings: Array,
    recipe: BagRecipe,
    seed: int,
) -> Array:
    """Train, and return embeddings and head (with its bias as a last column) in one array."""
    documents, labels = aims.shape
    width = embeddings.shape[1]
    words = torch.from_numpy(embeddings).requires_grad_()
    head = torch.zeros(labels, width + 1, requires_grad=True)
    average = Average({"words": words, "head": head}, recipe.average)
    optimizer = torch.optim.AdamW([words, head], lr=recipe.rate, betas=(0.9, 0.98), weight_decay=0)
    steps_per_epoch = -(-documents // recipe.batch)
    total, step = recipe.epochs * steps_per_epoch, 0
    for epoch in range(recipe.epochs):
        rng = np.random.default_rng([seed, epoch])
        for batch in np.array_split(rng.permutation(documents), steps_per_epoch):
            rate = recipe.rate * min(1.0, (step + 1) / recipe.warm_up) * (1 - step / total)
            optimizer.param_groups[0]["lr"] = rate
            pooled = _pool(counts[batch], words, recipe, rng)  # (batch, width)
            logits = pooled @ head[:, :width].T + head[:, width]
            target = torch.from_numpy(np.array(aims[batch]))
            loss = functional.cross_entropy(logits, target)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            step += 1
            average.update()
    kept = average.values
    packed = np.zeros((len(embeddings) + labels, width + 1), np.float32)
    packed[: len(embeddings), :width] = kept["words"].numpy()
    packed[len(embeddings) :] = kept["head"].numpy()
    return packed


def _pool(
    counts: scipy.sparse.csr_matrix, words: Tensor, recipe: BagRecipe, rng: np.random.Generator
) -> Tensor:
    """The mean embedding of thinned documents, repeats damped as the classifier damps them."""
    sizes = np.diff(counts.indptr)
    shares = rng.uniform(recipe.keep, 1, len(sizes))
    often = rng.binomial(counts.data, np.repeat(shares, sizes))
    often *= rng.random(len(often)) >= recipe.type_dropout
    weights = np.where(often > 0, 1 + np.log(np.maximum(often, 1)), 0).astype(np.float32)
    owners = np.repeat(np.arange(len(sizes)), sizes)
    totals = np.bincount(owners, weights=weights, minlength=len(sizes))
    weights /= np.maximum(totals, 1)[owners].astype(np.float32)
    return functional.embedding_bag(
        torch.from_numpy(counts.indices.astype(np.int64)),
        words,
        torch.from_numpy(counts.indptr[:-1].astype(np.int64)),
        mode="sum",
        per_sample_weights=torch.from_numpy(weights),
    )
