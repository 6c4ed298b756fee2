"""Formulas of the mechanisms that leave pairs of tokens out, as in `formulas.py`.

Each says for every query which tokens it sees, and takes a softmax over them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from tests.contract.formulas import Array, softmax_rows

Ints = NDArray[np.int64]


def softmax_over(q: Array, k: Array, v: Array, seen: Callable[[int], Iterable[int]]) -> Array:
    out = np.zeros_like(q)
    for i in range(len(q)):
        keys = sorted(set(seen(i)))
        weights = softmax_rows((q[i] @ k[keys].T / math.sqrt(q.shape[1]))[None])
        out[i] = (weights @ v[keys])[0]
    return out


def longformer(
    q: Array,
    k: Array,
    v: Array,
    window: int,
    global_tokens: int,
    own: tuple[Array, Array, Array] | None = None,
) -> Array:
    n = len(q)

    def seen(i: int) -> Iterable[int]:
        return (
            j for j in range(n) if abs(i - j) <= window or i < global_tokens or j < global_tokens
        )

    out = softmax_over(q, k, v, seen)
    if own is not None:
        everything = softmax_over(*own, lambda _: range(n))
        out[:global_tokens] = everything[:global_tokens]
    return out


def sparse(q: Array, k: Array, v: Array, pattern: str, stride: int, summary: int) -> Array:
    n = len(q)

    def seen(i: int) -> Iterable[int]:
        if pattern == "strided":
            return (j for j in range(n) if abs(i - j) <= stride or (i - j) % stride == 0)
        return (j for j in range(n) if j // stride == i // stride or j % stride >= stride - summary)

    return softmax_over(q, k, v, seen)


def blockwise(q: Array, k: Array, v: Array, blocks: int, head: int) -> Array:
    n = len(q)
    count = min(blocks, n)
    block = [p * count // n for p in range(n)]
    return softmax_over(
        q, k, v, lambda i: (j for j in range(n) if block[j] == (block[i] + head) % count)
    )


def bigbird(q: Array, k: Array, v: Array, size: int, draws: Ints) -> Array:
    """draws: (table, random) whole numbers below 2^11"""
    n = len(q)
    last = (n - 1) // size

    def seen(i: int) -> Iterable[int]:
        block = i // size
        if block in (0, last):
            return range(n)
        rest = [b for b in range(1, last) if abs(b - block) > 1]
        drawn = []
        for r, number in enumerate(draws[block % len(draws)]):
            parts = len(draws[0])
            part = rest[r * len(rest) // parts : (r + 1) * len(rest) // parts]
            if part:
                drawn.append(part[int(number) * len(part) // 2**11])
        seen_blocks = {0, last, block - 1, block, block + 1, *drawn}
        return (j for j in range(n) if j // size in seen_blocks)

    return softmax_over(q, k, v, seen)


def informer(q: Array, k: Array, v: Array, queries: int, keys: int) -> Array:
    n, d = q.shape
    logarithm = math.ceil(math.log(n))
    out = np.tile(v.mean(axis=0), (n, 1))
    if n == 1:
        return out
    samples = min(keys * logarithm, n)
    sample = [number * n // samples for number in range(samples)]
    scores = q @ k[sample].T / math.sqrt(d)
    measured = scores.max(axis=1) - scores.mean(axis=1)
    chosen = np.argsort(-measured)[: min(queries * logarithm, n)]
    out[chosen] = softmax_rows(q[chosen] @ k.T / math.sqrt(d)) @ v
    return out


def reformer(q: Array, k: Array, v: Array, rotations: Array, chunk: int) -> Array:
    """rotations: (rounds, d, buckets / 2)"""
    n, d = q.shape
    x = (q + k) / 2
    keys = x / np.linalg.norm(x, axis=1, keepdims=True)
    seen: list[list[set[int]]] = []  # of each round and token
    for R in rotations:
        turned = x @ R
        bucket = np.concatenate([turned, -turned], axis=1).argmax(axis=1)
        place = {p: s for s, p in enumerate(sorted(range(n), key=lambda p: (bucket[p], p)))}
        seen.append(
            [
                {
                    j
                    for j in range(n)
                    if bucket[i] == bucket[j] and place[i] // chunk - place[j] // chunk in (0, 1)
                }
                for i in range(n)
            ]
        )
    out = np.zeros_like(q)
    for i in range(n):
        # Over the union of all rounds, since what several of them see counts once.
        union = sorted(set().union(*(of_round[i] for of_round in seen)))
        scores = x[i] @ keys[union].T / math.sqrt(d)
        scores = scores - 1e5 * (np.array(union) == i)
        out[i] = (softmax_rows(scores[None]) @ v[union])[0]
    return out
