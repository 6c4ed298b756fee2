"""Memory that large runs needed: kept for a while, then given back."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from models.bundle import ROOT, load_bundle
from service.engines import open_engine
from service.engines.base import Ids
from service.engines.fake import FakeEngine
from tests.support.scheduled import ONE_LANE, piece, running, wait_until

SOON = replace(ONE_LANE, keep_memory=0.05)
LARGE, SMALL = 8_192, 50
_MIB = 1 << 20


@pytest.mark.parametrize("long_lanes", [0, 1])
def test_an_idle_lane_gives_memory_back_once_and_goes_on(long_lanes: int) -> None:
    engine = FakeEngine()
    with running(engine, replace(SOON, long_lanes=long_lanes)) as scheduler:
        for times in (1, 2):
            job = piece(LARGE)
            scheduler.submit(job)
            job.future.result(10)
            wait_until(lambda times=times: engine.shrunk == times)  # type: ignore[misc]
        time.sleep(4 * SOON.keep_memory)
        assert engine.shrunk == 2
        assert scheduler.healthy()


def test_short_documents_leave_nothing_to_give_back() -> None:
    engine = FakeEngine()
    with running(engine, SOON) as scheduler:
        job = piece(SMALL)
        scheduler.submit(job)
        job.future.result(10)
        time.sleep(4 * SOON.keep_memory)
        assert engine.shrunk == 0


def test_memory_is_kept_while_large_documents_follow_each_other() -> None:
    engine = FakeEngine()
    with running(engine, replace(ONE_LANE, keep_memory=60.0)) as scheduler:
        for _ in range(3):
            job = piece(LARGE)
            scheduler.submit(job)
            job.future.result(10)
        assert engine.shrunk == 0


@pytest.mark.parametrize("long_lanes", [0, 1])
def test_short_documents_do_not_keep_what_a_large_one_needed(long_lanes: int) -> None:
    engine = FakeEngine()
    with running(engine, replace(SOON, long_lanes=long_lanes)) as scheduler:
        large = piece(LARGE)
        scheduler.submit(large)
        large.future.result(10)
        until = time.monotonic() + 10
        while not engine.shrunk and time.monotonic() < until:
            job = piece(SMALL)
            scheduler.submit(job)
            job.future.result(10)
        assert engine.shrunk == 1


def test_a_large_run_that_failed_gives_its_memory_back_too() -> None:
    engine = FakeEngine()
    engine.fail = MemoryError("none left")
    with running(engine, SOON) as scheduler:
        job = piece(LARGE)
        scheduler.submit(job)
        with pytest.raises(MemoryError):
            job.future.result(10)
        wait_until(lambda: engine.shrunk == 1)


@pytest.mark.parametrize("own_memory", [False, True])
def test_onnx_runtime_gives_back_what_a_long_document_needed(own_memory: bool) -> None:
    bundle = load_bundle(ROOT / "elife-nystromformer")
    engine = open_engine(bundle, engine="onnxruntime", device="cpu")
    used = engine.doubled() if own_memory else engine
    assert used is not None
    ids: Ids = np.random.default_rng(0).integers(0, bundle.manifest.config.vocab_size, (1, 16_384))
    before = used.run(ids, np.array([16_384])).logits
    held = _resident_bytes()
    used.shrink()
    given_back = held - _resident_bytes()
    assert given_back > 50 * _MIB
    np.testing.assert_array_equal(used.run(ids, np.array([16_384])).logits, before)


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
