"""Fast lanes with an engine of their own: who gets one, with what answer, and its end."""

from __future__ import annotations

import numpy as np
import pytest

from models.bundle import Bundle
from service.engines import open_engine
from service.engines.base import Engine
from service.engines.fake import FakeEngine
from service.scheduling.policy import Policy
from service.settings import Settings
from tests.support.scheduled import ONE_LANE, piece, running
from tests.support.serving import fake_deployment
from tests.support.small_bundle import shared_bundle

POLICY = Policy(lanes=2, long_lanes=2, long_nice=0, long_work=0.5, queue_seconds=100.0)


class Doubling(FakeEngine):
    """A fake that can be doubled."""

    def __init__(self, seconds: float = 0.0) -> None:
        super().__init__(labels=3, seconds=lambda _batch, _n: seconds)
        self.doubles: list[FakeEngine] = []

    def doubled(self) -> Engine:
        self.doubles.append(FakeEngine(labels=3, seconds=self.seconds))
        return self.doubles[-1]


@pytest.fixture
def bundle() -> Bundle:
    return shared_bundle()


def test_each_core_has_an_engine_that_its_two_lanes_share() -> None:
    engine = Doubling(seconds=0.05)
    with running(engine, POLICY) as scheduler:
        scheduler.separate_lanes()
        assert scheduler.engines == {engine, *engine.doubles}
        for tokens in (600, 10):
            jobs = [piece(tokens) for _ in range(4)]
            for job in jobs:
                scheduler.submit(job)
            for job in jobs:
                job.future.result(10)
    (double,) = engine.doubles
    for used in (engine, double):
        assert {length for run in used.runs for length in run} == {10, 600}


def test_a_lane_that_is_alone_needs_no_engine_of_its_own() -> None:
    engine = Doubling()
    policy = Policy(lanes=1, long_lanes=0, queue_seconds=100.0)
    with running(engine, policy) as scheduler:
        scheduler.separate_lanes()
        assert scheduler.engines == {engine}
    assert engine.doubles == []


def test_lanes_share_an_engine_that_cannot_be_doubled() -> None:
    engine = FakeEngine()
    with running(engine, ONE_LANE) as scheduler:
        scheduler.separate_lanes()
        job = piece(10)
        scheduler.submit(job)
        job.future.result(10)
    assert engine.runs == [[10]]


def test_every_engine_is_closed_at_the_end() -> None:
    engine = Doubling()
    deployed = fake_deployment(engine).start(Settings(lanes=2, long_lanes=2), lambda _: None)
    deployed.scheduler.separate_lanes()
    assert deployed.close()
    assert engine.closed
    assert [double.closed for double in engine.doubles] == [True]


def test_onnx_runtime_answers_the_same_from_memory_of_its_own(bundle: Bundle) -> None:
    engine = open_engine(bundle, engine="onnxruntime", device="cpu")
    double = engine.doubled()
    assert double is not None
    assert double.info == engine.info
    ids = np.random.default_rng(0).integers(0, 10, (2, 67))
    lengths = np.array([67, 31])
    np.testing.assert_array_equal(double.run(ids, lengths).logits, engine.run(ids, lengths).logits)
    engine.close()
    double.run(ids, lengths)
    double.close()


def test_pytorch_is_shared_by_all_lanes(bundle: Bundle) -> None:
    assert open_engine(bundle, engine="torch", device="cpu").doubled() is None
