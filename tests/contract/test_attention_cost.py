"""Linear means linear: operations and memory are counted, not timed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from models.attention import Attention
from models.mechanisms import ATTENTIONS
from tests.contract.variants import HEAD_DIM, HEADS, VARIANTS, Variant

SHORT, LONG = 4096, 16_384
LINEAR = [variant for variant in VARIANTS if ATTENTIONS[variant.name].linear]


class ElementCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the elements that all operations write."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else (result,):
            if isinstance(tensor, torch.Tensor):
                self.elements += tensor.numel()
        return result


@dataclass(frozen=True)
class Cost:
    """What one forward pass took."""

    operations: int
    peak_bytes: int
    largest_bytes: int


def cost_of(attention: Attention, n: int, folder: Path) -> Cost:
    q, k, v = torch.randn(3, 1, HEADS, n, HEAD_DIM)
    mask = torch.arange(n)[None] < n - 5
    with torch.no_grad():
        with FlopCounterMode(display=False) as multiplications, ElementCounter() as elements:
            attention(q, k, v, mask)
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as run:
            attention(q, k, v, mask)
    run.export_chrome_trace(str(folder / "trace.json"))
    changes = list(allocations(folder / "trace.json"))
    live = peak = 0
    for change in changes:
        live += change
        peak = max(peak, live)
    return Cost(multiplications.get_total_flops() + elements.elements, peak, max(changes))


def allocations(trace: Path) -> Iterator[int]:
    """Bytes taken (and, negative, given back) in the order of time."""
    events = [e for e in json.loads(trace.read_text())["traceEvents"] if e["name"] == "[memory]"]
    for event in sorted(events, key=lambda e: float(e["ts"])):
        yield int(event["args"]["Bytes"])


@pytest.mark.parametrize("variant", LINEAR, ids=str)
def test_cost_grows_with_the_length(variant: Variant, tmp_path: Path) -> None:
    attention = variant.build()
    short, long = cost_of(attention, SHORT, tmp_path), cost_of(attention, LONG, tmp_path)
    assert long.operations <= 4.4 * short.operations
    assert long.peak_bytes <= 4.4 * short.peak_bytes
    for cost, n in ((short, SHORT), (long, LONG)):
        assert cost.largest_bytes < n * n, "something of the size n × n was allocated"


def test_the_count_sees_a_square(tmp_path: Path) -> None:
    """What is counted tells an n × n matrix when there is one."""
    attention = Variant("kernelized").build()
    small, large = cost_of(attention, 512, tmp_path), cost_of(attention, 2048, tmp_path)
    assert large.operations > 10 * small.operations
    assert large.peak_bytes > 10 * small.peak_bytes
    assert large.largest_bytes >= 2048 * 2048 * 4


def test_fused_softmax_allocates_no_square(tmp_path: Path) -> None:
    """The baseline is the fused kernel, also where documents are padded."""
    cost = cost_of(Variant("softmax").build(), 8192, tmp_path)
    assert cost.largest_bytes < 8192 * 8192
