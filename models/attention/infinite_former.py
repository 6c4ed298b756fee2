"""∞-former: softmax attention inside segments, and the past as a continuous signal."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch._higher_order_ops.scan import scan
from torch.nn import functional

from models.attention.base import Attention
from models.attention.masking import pad_rows, shorter
from models.attention.signal import WIDTHS, Signal, gaussian_density, make_signal
from models.attention.softmax import fused_softmax_attention
from models.errors import ConfigError

#: Bins of the histogram that tells where attention fell.
BINS = 128
#: Smallest variance of a query's look into the past.
SMALLEST_VARIANCE = 1e-6


class InfiniteFormerAttention(Attention):
    """Z_T + Z_LTM: softmax in the query's segment, and E[ψ] Bᵥ over the segments before it.

    The memory holds keys and values as signals over [0, 1]. It starts empty for every
    document, and only whole segments ever enter it, since the last is read by none.
    """

    #: Whether the memory is read; without it the segments know nothing of each other.
    remembers: bool = True

    def __init__(
        self,
        heads: int,
        head_dim: int,
        *,
        segment: int,
        basis: int,
        widths: str,
        ridge: float,
        samples: int,
        tau: float,
        sticky: bool,
    ) -> None:
        super().__init__(heads, head_dim)
        if basis % 2:
            raise ConfigError(f"infinite_former: basis must be even, half per width; got {basis}")
        self.segment = segment
        self.samples = samples
        self.sticky = sticky
        signal = make_signal(
            basis=basis,
            widths=WIDTHS[widths],
            segment=segment,
            samples=samples,
            tau=tau,
            ridge=ridge,
        )
        constants = {"powers": signal.powers(), **vars(signal)}
        for name, constant in constants.items():
            self.register_buffer(f"signal_{name}", constant.float(), persistent=False)
        self.signal_powers: Tensor
        self.locate = nn.Parameter(torch.empty(basis))  # where in the past a query looks: w_μ
        self.spread = nn.Parameter(torch.empty(basis))  # and how widely: w_σ
        for weight in (self.locate, self.spread):
            nn.init.uniform_(weight, -(basis**-0.5), basis**-0.5)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        """Read segments with their past."""
        batch, heads, n, d = q.shape
        size = shorter(self.segment, n)  # a short document is one segment
        segments = (n + size - 1) // size
        missing = segments * size - n
        q, k, v = (
            pad_rows(x, missing).view(batch, heads, segments, size, d).transpose(1, 2)
            for x in (q, k, v)
        )  # (batch, segments, heads, size, d)
        real = functional.pad(mask, (0, missing)).view(batch * segments, size)
        short_term = fused_softmax_attention(
            q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), real
        ).view(batch, segments, heads, size, d)
        if not self.remembers:
            out = short_term.transpose(1, 2)
            return out.reshape(batch, heads, segments * size, d)[:, :, :n]
        signal = self._signal(q)
        seen = torch.cat([k, v], dim=-1)  # (batch, segments, heads, size, 2 d)
        long_term = self._sticky(q, seen, signal) if self.sticky else self._even(q, seen, signal)
        out = (short_term + long_term).transpose(1, 2)  # (batch, heads, segments, size, d)
        return out.reshape(batch, heads, segments * size, d)[:, :, :n]

    def _even(self, q: Tensor, seen: Tensor, signal: Signal) -> Tensor:
        """The past sampled evenly: all memories at once.

        An update is linear then, B_t = keep B_{t−1} + add X_t, and the sum over the past is
        taken by doubling its reach, until what is added has been forgotten.
        """
        size = seen.shape[3]
        start = signal.fit[:, :size] @ seen[:, :1]  # (batch, 1, heads, N, 2 d)
        is_first = torch.arange(seen.shape[1], device=seen.device)[:, None, None, None] == 0
        memory = torch.where(is_first, start, signal.add[:, :size] @ seen)
        for step, power in enumerate(self.signal_powers.to(seen.dtype)):
            memory = memory + power @ _earlier(memory, 2**step)
        return self._read(q, _earlier(memory, 1), signal)[0]

    def _sticky(self, q: Tensor, seen: Tensor, signal: Signal) -> Tensor:
        """The past sampled where attention fell most: one memory after the other.

        The loop's body names no size that varies, which the exporter could not bring into a graph.
        """
        size, batch = seen.shape[3], seen.shape[0]
        is_first = torch.arange(seen.shape[1], device=q.device)[:, None, None, None] == 0
        new = torch.where(is_first, signal.fit[:, :size] @ seen, signal.add[:, :size] @ seen)
        refit = signal.refit.expand(batch, -1, -1)  # (batch, N, S)
        count = torch.ones_like(q[0, 0, 0, :, 0]).sum() * self.heads  # queries of a segment

        def step(memory: Tensor, part: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            """Read the memory (batch, heads, N, 2 d) for a segment, then take the segment in."""
            queries, segment = part
            reads = [
                self._read(each, past, signal)
                for each, past in zip(queries.unbind(1), memory.unbind(1), strict=True)
            ]
            points = self._where_attention_fell([density for _, density in reads], count)
            kept = signal.basis(points)  # (batch, S, N)
            old = [refit.bmm(kept.bmm(past)) for past in memory.unbind(1)]
            return segment + torch.stack(old, dim=1), torch.stack(
                [read for read, _ in reads], dim=1
            )

        memory = torch.zeros_like(new[:, 0])  # of an empty memory nothing is left at an update
        parts = (q.transpose(0, 1), new.transpose(0, 1))
        if torch.compiler.is_exporting():  # a loop in the graph, for any number of segments
            looped: Tensor = scan(step, memory, parts, dim=0)[1]
            return looped.transpose(0, 1)
        outputs = []
        for part in zip(*parts, strict=True):
            memory, read = step(memory, part)
            outputs.append(read)
        return torch.stack(outputs, dim=1)

    def _read(
        self, q: Tensor, memory: Tensor, signal: Signal
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """E[ψ] Bᵥ for every query, and the normal density each query looks with."""
        keys, values = memory[..., : self.head_dim], memory[..., self.head_dim :]
        scores = _product(q * self.head_dim**-0.5, keys.transpose(-1, -2))  # (…, size, N)
        mean = (scores * self.locate.to(q.dtype)).sum(dim=-1, keepdim=True).sigmoid()
        spread = (scores * self.spread.to(q.dtype)).sum(dim=-1, keepdim=True)
        variance = functional.softplus(spread)  # (…, heads, size, 1)
        variance = variance.clamp(min=SMALLEST_VARIANCE)
        expected = gaussian_density(mean, signal.mean, signal.variance + variance)
        return _product(expected, values), (mean, variance)

    def _where_attention_fell(
        self, densities: list[tuple[Tensor, Tensor]], count: Tensor
    ) -> Tensor:
        """Points at even quantiles of the heads' attention over the past: (batch, S)."""
        mean, _ = densities[0]  # (batch, size, 1), as the variance
        edges = torch.linspace(0, 1, BINS + 1, dtype=mean.dtype, device=mean.device)
        below = [((edges - m) / (2 * v).sqrt()).erf().sum(dim=1) for m, v in densities]
        total = torch.stack(below).sum(dim=0) / (2 * count)  # (batch, BINS + 1)
        fallen = total[:, 1:] - total[:, :-1]
        histogram = fallen + 1e-6  # (batch, BINS); none is empty
        cumulative = histogram.cumsum(dim=-1)
        cumulative = cumulative / cumulative[:, -1:]
        quantiles = (torch.arange(self.samples, device=mean.device) + 0.5) / self.samples
        quantiles = quantiles.to(mean.dtype)
        upper = (
            (cumulative[:, None] < quantiles[:, None]).sum(dim=2).clamp(max=BINS - 1)
        )  # (batch, S)
        high = cumulative.gather(1, upper)
        width = (histogram / histogram.sum(dim=1, keepdim=True)).gather(1, upper)
        inside = 1 - ((high - quantiles) / width).clamp(0, 1)
        points: Tensor = (upper + inside) / BINS
        return points

    def _signal(self, like: Tensor) -> Signal:
        """The constants in the type of the computation."""
        names = ("mean", "variance", "fit", "keep", "add", "refit")
        return Signal(**{name: getattr(self, f"signal_{name}").to(like.dtype) for name in names})


def _product(x: Tensor, y: Tensor) -> Tensor:
    """x @ y; in the loop's body, where they have three dimensions, without naming their sizes."""
    return x.bmm(y) if x.dim() == 3 else x @ y


def _earlier(memory: Tensor, steps: int) -> Tensor:
    """Memories of so many segments before, zero where there were none."""
    segments = memory.shape[1]
    return functional.pad(memory, (0, 0, 0, 0, 0, 0, steps, 0))[:, :segments]
