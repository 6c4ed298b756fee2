"""Idle cores lent to a long document that is alone: when, with what answer, at which priority."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from models.bundle import Bundle
from service.engines import open_engine
from service.engines.base import Engine, EngineInfo, Ids, Output
from service.engines.fake import FakeEngine
from service.scheduling.cores import can_lower_priority
from service.scheduling.scheduler import Run
from service.settings import Settings
from service.startup.deployment import Deployment, Running, describe
from tests.support.scheduled import ONE_LANE, GatedEngine, piece, running, wait_until
from tests.support.serving import fake_deployment, tokenizer
from tests.support.small_bundle import shared_bundle

POLICY = replace(ONE_LANE, lanes=2, long_lanes=2, long_work=0.5)  # 500 tokens


class WideEngine(FakeEngine):
    """A fake with two threads, whose answers may differ from those of one."""

    def __init__(self, shift: float = 0.0) -> None:
        super().__init__(labels=3)
        self.info = EngineInfo("fake", "cpu", "FakeProvider", "fp32", 2, "asked for by a test")
        self.shift = shift

    def run(self, ids: Ids, lengths: Ids, *, contributions: bool = False) -> Output:
        output = super().run(ids, lengths, contributions=contributions)
        shifted = output.logits + self.shift * np.arange(self.labels, dtype=np.float32)
        return Output(shifted, output.contributions)


class Widening(FakeEngine):
    """A fake that can be widened."""

    def __init__(self, wide: WideEngine) -> None:
        super().__init__(labels=3)
        self.wide = wide

    def widened(self, threads: int) -> Engine:
        assert threads == 2
        return self.wide


@pytest.fixture
def bundle() -> Bundle:
    return shared_bundle()


def test_a_long_document_that_is_alone_gets_all_cores() -> None:
    seen: list[Run] = []
    wide = WideEngine()
    with running(FakeEngine(), POLICY, seen.append) as scheduler:
        scheduler.wide = wide
        assert scheduler.lent_threads == 2
        for tokens in (600, 10):
            job = piece(tokens)
            scheduler.submit(job)
            job.future.result(10)
    assert wide.runs == [[600]]
    assert [run.lent for run in seen] == [True, False]


@pytest.mark.parametrize("other", [700, 200])
def test_a_long_document_in_company_keeps_to_its_core(other: int) -> None:
    engine, wide = GatedEngine(), WideEngine()
    with running(engine, POLICY) as scheduler:
        scheduler.submit(piece(other))
        wait_until(lambda: len(engine.runs) == 1)
        scheduler.wide = wide
        long_one = piece(600)
        scheduler.submit(long_one)
        wait_until(lambda: len(engine.runs) == 2)
        engine.gate.set()
        long_one.future.result(10)
    assert wide.runs == []


def test_who_will_soon_be_alone_counts_as_alone() -> None:
    engine, wide = GatedEngine(), WideEngine()
    with running(engine, POLICY) as scheduler:
        scheduler.submit(piece(10))  # over within a quarter of the long one's work
        wait_until(lambda: len(engine.runs) == 1)
        scheduler.wide = wide
        long_one = piece(600)
        scheduler.submit(long_one)
        long_one.future.result(10)
    assert wide.runs == [[600]]


def test_no_core_is_lent_while_short_documents_queue() -> None:
    engine, wide = GatedEngine(), WideEngine()
    with running(engine, POLICY) as scheduler:
        for _ in range(40):  # each soon over, all together not within a quarter of its work
            scheduler.submit(piece(10))
        wait_until(lambda: len(engine.runs) == 2)
        scheduler.wide = wide
        long_one = piece(600)
        scheduler.submit(long_one)
        wait_until(lambda: [600] in engine.runs)
        engine.gate.set()
        long_one.future.result(10)
    assert wide.runs == []


def test_what_is_lent_teaches_the_cost_model_nothing() -> None:
    with running(FakeEngine(), POLICY) as scheduler:
        scheduler.wide = WideEngine()
        before = scheduler.cost.coefficients
        for _ in range(40):
            job = piece(600)
            scheduler.submit(job)
            job.future.result(10)
        assert scheduler.cost.coefficients == before


@pytest.mark.parametrize(("shift", "threads"), [(0.0, 2), (0.01, 0)])
def test_cores_are_lent_only_if_the_answer_stays_the_same(shift: float, threads: int) -> None:
    wide = WideEngine(shift)
    settings = Settings(lanes=2, long_lanes=2)
    deployed = fake_deployment(Widening(wide)).start(settings, lambda _: None)
    try:
        _in_a_thread(deployed)
        assert deployed.scheduler.lent_threads == threads
        assert wide.closed == (threads == 0)
    finally:
        deployed.close()


def test_onnx_runtime_lends_with_the_same_answer_and_the_long_lanes_priority(
    bundle: Bundle,
) -> None:
    engine = open_engine(bundle, engine="onnxruntime", device="cpu")
    model = describe(bundle, "fp32")
    deployment = Deployment(replace(model, vocab_size=10), engine, tokenizer())
    before = _threads()
    deployed = deployment.start(Settings(lanes=2, long_lanes=2), lambda _: None)
    try:
        lanes = _threads() - before
        _in_a_thread(deployed)
        wide = deployed.scheduler.wide
        assert wide is not None
        assert wide.info.threads == 2
        ids = np.random.default_rng(0).integers(0, 10, (1, 251))
        alone = engine.run(ids, np.array([251])).logits
        np.testing.assert_allclose(wide.run(ids, np.array([251])).logits, alone, atol=1e-5)
        helpers = _threads() - before - lanes
        assert len(helpers) == 1
        if can_lower_priority():
            policy = deployed.scheduler.policy
            nice = os.getpriority(os.PRIO_PROCESS, 0) + policy.nice + policy.long_nice
            assert os.getpriority(os.PRIO_PROCESS, helpers.pop()) == min(19, nice)
    finally:
        deployed.close()


def test_pytorch_lends_nothing(bundle: Bundle) -> None:
    assert open_engine(bundle, engine="torch", device="cpu").widened(2) is None


def _in_a_thread(deployed: Running) -> None:
    """Lending lowers the thread that asks for it."""
    thread = threading.Thread(target=deployed.lend_cores)
    thread.start()
    thread.join(30)
    wait_until(lambda: not thread.is_alive())
    time.sleep(0.05)  # the system forgets an ended thread a moment later


def _threads() -> set[int]:
    return {int(path.name) for path in Path("/proc/self/task").iterdir()}
