"""The mechanisms' formulas restated in NumPy float64, one document and one head at a time.

Written from the formulas alone: slow, plain and independent of what they are held against.
q, k, v and the result are (n, d).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def softmax_rows(scores: Array) -> Array:
    shifted = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=1, keepdims=True))


def softmax(q: Array, k: Array, v: Array) -> Array:
    return softmax_rows(q @ k.T / math.sqrt(q.shape[1])) @ v


def linformer_matrix(q: Array, k: Array, v: Array, E: Array, F: Array) -> Array:
    n = len(q)
    return softmax(q, E[:, :n] @ k, F[:, :n] @ v)


def linformer_windows(
    q: Array, k: Array, v: Array, size: int, kind: str, **kernels: Array
) -> Array:
    def shorten(x: Array, kernel: Array | None) -> Array:
        rows = []
        for begin in range(0, len(x), size):
            window = x[begin : begin + size]
            if kind == "mean":
                rows.append(window.mean(axis=0))
            elif kind == "max":
                rows.append(window.max(axis=0))
            else:
                assert kernel is not None
                rows.append((window * kernel[: len(window)]).sum(axis=0))
        return np.stack(rows)

    return softmax(q, shorten(k, kernels.get("keys")), shorten(v, kernels.get("values")))


def six_rounds(A: Array, rounds: int) -> Array:
    Z: Array = A.T / (np.abs(A).sum(axis=0).max() * np.abs(A).sum(axis=1).max())
    eye = np.eye(len(A))
    for _ in range(rounds):
        Z = Z @ (13 * eye - A @ Z @ (15 * eye - A @ Z @ (7 * eye - A @ Z))) / 4
    return Z


def nystromformer(
    q: Array, k: Array, v: Array, landmarks: int, rounds: int, kernel: Array
) -> Array:
    n, d = q.shape
    if n <= landmarks:
        out = softmax(q, k, v)
    else:
        q4, k4 = q / d**0.25, k / d**0.25
        segment = np.array([p * landmarks // n for p in range(n)])
        q_mean = np.stack([q4[segment == s].mean(axis=0) for s in range(landmarks)])
        k_mean = np.stack([k4[segment == s].mean(axis=0) for s in range(landmarks)])
        Z = six_rounds(softmax_rows(q_mean @ k_mean.T), rounds)
        out = softmax_rows(q4 @ k_mean.T) @ Z @ (softmax_rows(q_mean @ k4.T) @ v)
    reach = len(kernel) // 2
    for p in range(n):
        for offset in range(-reach, reach + 1):
            if 0 <= p + offset < n:
                out[p] += kernel[offset + reach] * v[p + offset]
    return out


def performer(q: Array, k: Array, v: Array, W: Array, kind: str) -> Array:
    d, m = q.shape[1], len(W)

    def features(x: Array, per_row: bool) -> Array:
        u, half = x @ W.T, (x**2).sum(axis=1, keepdims=True) / 2
        if kind == "trigonometric":
            c = half if per_row else half.max()
            waves: Array = np.concatenate([np.cos(u), np.sin(u)], axis=1)
            return np.asarray(waves * np.exp(half - c) / m**0.5)
        if kind == "relu":
            return np.maximum(u, 0) + 1e-3
        if kind == "hyperbolic":
            return np.concatenate([np.exp(u - half), np.exp(-u - half)], axis=1)
        c = u.max(axis=1, keepdims=True) if per_row else u.max()
        return np.asarray((np.exp(u - half - c) + 1e-6) / m**0.5)

    phi_q, phi_k = features(q / d**0.25, True), features(k / d**0.25, False)
    return np.asarray(phi_q @ (phi_k.T @ v) / (phi_q @ phi_k.sum(axis=0))[:, None])


def kernel(x: Array, y: Array) -> Array:
    d = x.shape[1]
    squared = ((x[:, None, :] - y[None, :, :]) ** 2).sum(axis=2)
    return np.asarray(np.exp(-squared / (2 * math.sqrt(d))))


def kernelized(q: Array, k: Array, v: Array) -> Array:
    return kernel(q, k) @ v


def skyformer(q: Array, k: Array, v: Array, landmarks: int, gamma: float, rounds: int) -> Array:
    n = len(q)

    def strided(x: Array, count: int) -> Array:
        firsts = sorted(
            {
                next(p for p in range(n) if p * count // n == s)
                for s in {p * count // n for p in range(n)}
            }
        )
        return x[firsts]

    from_keys = landmarks // 2
    w = np.concatenate([strided(q, landmarks - from_keys), strided(k, from_keys)])
    M = kernel(w, w) + gamma * np.eye(len(w))
    D = np.diag(M.sum(axis=1) ** -0.5)
    return kernel(q, w) @ D @ six_rounds(D @ M @ D, rounds) @ D @ kernel(w, k) @ v


def linear(q: Array, k: Array, v: Array) -> Array:
    def phi(x: Array) -> Array:
        return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))

    return np.asarray(phi(q) @ (phi(k).T @ v) / (phi(q) @ phi(k).sum(axis=0) + 1e-6)[:, None])


def efficient(q: Array, k: Array, v: Array) -> Array:
    return softmax_rows(q) @ (softmax_rows(k.T) @ v)


class InfiniteFormer:
    """∞-former read segment by segment, its regressions solved anew from their positions."""

    def __init__(self, locate: Array, spread: Array, params: dict[str, Any]) -> None:
        self.locate, self.spread = locate, spread
        self.params = params
        half = params["basis"] // 2
        widths = {"fine": (0.005, 0.01), "coarse": (0.01, 0.05)}[params["widths"]]
        self.mu = np.repeat(np.linspace(0, 1, half), 2)
        self.sigma = np.tile(widths, half)

    def basis(self, t: Array, extra: Array | float = 0.0) -> Array:
        variance = self.sigma**2 + extra
        return np.asarray(
            np.exp(-((t[:, None] - self.mu) ** 2) / (2 * variance))
            / np.sqrt(2 * math.pi * variance)
        )

    def fit(self, values: Array, inside: Array, outside: Array) -> Array:
        F = self.basis(np.concatenate([inside, outside])).T
        G = F.T @ np.linalg.inv(F @ F.T + self.params["ridge"] * np.eye(len(self.mu)))
        return G[: len(inside)].T @ values

    def first(self, values: Array) -> Array:
        L = len(values)
        if L % 2:
            t = np.linspace(-0.5 + 1 / L, 1.5 - 1 / L, 2 * L - 1)
            begin = (L - 1) // 2
        else:
            t = np.linspace(-0.5 + 1 / (2 * L), 1.5 - 1 / (2 * L), 2 * L)
            begin = L // 2
        inside = t[begin : begin + L]
        return self.fit(values, inside, np.concatenate([t[:begin], t[begin + L :]]))

    def update(self, B: Array, values: Array, where: Array) -> Array:
        L, S, tau = len(values), self.params["samples"], self.params["tau"]
        old = self.basis(where) @ B
        inside = np.concatenate(
            [tau * np.arange(1, S + 1) / S, tau + (1 - tau) * np.arange(1, L + 1) / L]
        )
        shift = 1 / (2 * L + S)
        t = np.linspace(-0.5 + shift, 1.5 - shift, 2 * (L + S))
        return self.fit(np.concatenate([old, values]), inside, t[(t < 0) | (t > 1)])

    def sticky_points(self, mu: Array, variance: Array) -> Array:
        edges = np.linspace(0, 1, 129)
        histogram = np.zeros(128)
        for m, s2 in zip(mu, variance, strict=True):
            below = [0.5 * (1 + math.erf((e - m) / math.sqrt(2 * s2))) for e in edges]
            histogram += np.diff(below) / len(mu)
        histogram += 1e-6
        cumulative = np.concatenate([[0.0], np.cumsum(histogram)]) / histogram.sum()
        S = self.params["samples"]
        return np.asarray(np.interp((np.arange(S) + 0.5) / S, cumulative, edges))

    def __call__(self, q: Array, k: Array, v: Array) -> Array:
        """All heads at once, (heads, n, d): sticky points are the heads' common ones."""
        heads, n, d = q.shape
        L, S = self.params["segment"], self.params["samples"]
        out = np.zeros_like(q)
        memory: list[Array] = []  # per head (N, 2 d)
        for begin in range(0, n, L):
            part = slice(begin, begin + L)
            seen = np.concatenate([k[:, part], v[:, part]], axis=2)
            mus, variances = [], []
            for h in range(heads):
                out[h, part] = softmax(q[h, part], k[h, part], v[h, part])
                if not memory:
                    continue
                scores = q[h, part] @ memory[h][:, :d].T / math.sqrt(d)
                mu = 1 / (1 + np.exp(-scores @ self.locate))
                variance = np.maximum(np.log1p(np.exp(scores @ self.spread)), 1e-6)
                out[h, part] += self.basis(mu, variance[:, None]) @ memory[h][:, d:]
                mus.append(mu)
                variances.append(variance)
            if seen.shape[1] < L:
                continue  # the document ends here
            if not memory:
                memory = [self.first(seen[h]) for h in range(heads)]
                continue
            where = np.arange(1, S + 1) / S
            if self.params["sticky"]:
                where = self.sticky_points(np.concatenate(mus), np.concatenate(variances))
            memory = [self.update(memory[h], seen[h], where) for h in range(heads)]
        return out
