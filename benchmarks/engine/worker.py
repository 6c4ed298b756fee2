"""One configuration in a process of its own: its memory first, then its times on request.

    python -m benchmarks.engine.worker '{"bundle": …, "engine": …, "length": …, "memory_limit": …}'

Answers with one line of JSON when the first run is done (the peak memory), then one for each
line `N` on its input: the seconds of N runs. Ends when its input ends.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from typing import Any

import numpy as np

from benchmarks.servers.memory import forget_peak, status_bytes
from models.bundle import load_bundle
from service.engines import open_engine
from service.engines.base import Engine, Ids

_SHORT = 16  # tokens of the run that starts threads and kernels before the baseline is read


def main() -> int:
    """Measure what the argument describes."""
    wanted = json.loads(sys.argv[1])
    bundle = load_bundle(wanted["bundle"])
    engine = open_engine(
        bundle,
        engine=wanted["engine"],
        device=wanted["device"],
        precision=wanted["precision"],
        threads=wanted["threads"],
    )
    random = np.random.default_rng(0)
    shape = (wanted["batch"], wanted["length"])
    ids = random.integers(0, bundle.manifest.config.vocab_size, shape, dtype=np.int64)
    lengths = np.full(shape[0], shape[1], dtype=np.int64)
    engine.run(ids[:, :_SHORT].copy(), np.minimum(lengths, _SHORT))
    _limit_memory(wanted["memory_limit"])
    _answer(_measure_memory(engine, ids, lengths))
    for line in sys.stdin:
        seconds = []
        for _ in range(int(line)):
            started = time.perf_counter()
            engine.run(ids, lengths)
            seconds.append(time.perf_counter() - started)
        _answer({"seconds": seconds})
    return 0


def _measure_memory(engine: Engine, ids: Ids, lengths: Ids) -> dict[str, Any]:
    """The first run's peak above the baseline; its time shows how long a run takes."""
    on_torch_cuda = engine.info.device == "cuda" and engine.info.engine == "torch"
    if on_torch_cuda:
        import torch  # noqa: PLC0415 - the engine has loaded it

        torch.cuda.reset_peak_memory_stats()
        baseline = torch.cuda.memory_allocated()
    else:
        forget_peak()  # that reached while loading
        baseline = status_bytes("VmRSS")
    started = time.perf_counter()
    engine.run(ids, lengths)
    seconds = time.perf_counter() - started
    if on_torch_cuda:
        peak: int | None = torch.cuda.max_memory_allocated()
    else:
        peak = None if engine.info.device == "cuda" else status_bytes("VmHWM")
    return {
        "first_seconds": seconds,
        "baseline_bytes": baseline,
        "peak_bytes": None if peak is None else max(0, peak - baseline),
        "device": engine.info.device,
    }


def _limit_memory(limit: int) -> None:
    """Let a wrong prediction fail in this process instead of exhausting the machine."""
    most = status_bytes("VmSize") + limit
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _answer(values: dict[str, Any]) -> None:
    print(json.dumps(values), flush=True)


if __name__ == "__main__":
    sys.exit(main())
