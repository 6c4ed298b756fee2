"""What a deployment finds out and opens after it is ready: shared runs, engines, lent cores."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from models.bundle import Bundle
from service.engines import open_with_factory
from service.engines.base import Ids, Output
from service.engines.fake import FakeEngine, FakeFactory
from service.scheduling.cores import can_lower_priority
from service.service import Service
from service.settings import Settings
from service.startup.deployment import Deployment, Running, describe
from tests.support.scheduled import wait_until
from tests.support.serving import LABELS, fake_deployment, tokenizer
from tests.support.small_bundle import shared_bundle

Seconds = Callable[[int, int], float]
TWO_CORES = Settings(workers=2, long_workers=2)


@pytest.fixture
def bundle() -> Bundle:
    return shared_bundle()


@contextmanager
def deployed(seconds: Seconds, max_batch_size: int = 8) -> Iterator[Running]:
    engine = FakeEngine(len(LABELS), seconds)
    settings = Settings(workers=1, long_workers=0, max_batch_size=max_batch_size)
    found = fake_deployment(engine).start(settings, lambda _: None)
    try:
        yield found
    finally:
        found.close()


def by_the_run(_batch: int, _n: int) -> float:
    return 0.004


def by_the_square_of_the_batch(batch: int, _n: int) -> float:
    return 0.002 * batch * batch


# Runs that several documents share.


def test_nobody_shares_before_it_was_tried() -> None:
    with deployed(by_the_run) as running:
        assert running.scheduler.policy.batch_below == 0
        running.share_runs()
        policy = running.scheduler.policy
    assert policy.batch_below >= 128
    assert policy.batch_saving == pytest.approx(0.004, rel=0.5)


def test_nobody_shares_where_it_takes_longer() -> None:
    with deployed(by_the_square_of_the_batch) as running:
        running.share_runs()
        assert running.scheduler.policy.batch_below == 0


def test_nobody_shares_where_the_settings_say_so() -> None:
    with deployed(by_the_run, max_batch_size=1) as running:
        running.share_runs()
        assert running.scheduler.policy.max_batch_size == 1


def test_the_first_answers_come_before_what_makes_later_ones_faster() -> None:
    service = Service(Settings(workers=1, long_workers=0), fake_deployment(FakeEngine(len(LABELS))))
    ready = threading.Event()
    service.when_ready = ready.set
    service.start()
    assert ready.wait(20)
    service.check_ready()
    assert not service.settled.wait(0.05)
    assert service.running.pipeline.reader.quick == 0
    service.has_begun.set()
    assert service.settled.wait(20)
    assert service.running.pipeline.reader.quick > 0
    service.close()


def test_a_fault_while_it_is_tried_leaves_the_service_ready() -> None:
    engine = FakeEngine(len(LABELS))
    service = Service(Settings(workers=1, long_workers=0), fake_deployment(engine))

    def fail_from_now_on() -> None:
        engine.fail = RuntimeError("no memory")

    service.when_ready = fail_from_now_on
    service.has_begun.set()
    service.start()
    assert service.settled.wait(20)
    service.check_ready()
    assert service.running.scheduler.policy.batch_below == 0
    service.close()


# Engines with memory of their own.


def test_each_further_core_gets_an_engine_and_all_are_closed_at_the_end() -> None:
    factory = FakeFactory(FakeEngine(len(LABELS)))
    deployment = replace(fake_deployment(factory.first), factory=factory)
    running = deployment.start(Settings(workers=3, long_workers=3), lambda _: None)
    running.separate_memory()
    assert len(factory.opened) == 2
    assert running.scheduler.engines == {factory.first, *factory.opened}
    assert running.close()
    assert all(engine.closed for engine in (factory.first, *factory.opened))


def test_a_worker_that_is_alone_needs_no_further_engine() -> None:
    factory = FakeFactory(FakeEngine(len(LABELS)))
    deployment = replace(fake_deployment(factory.first), factory=factory)
    running = deployment.start(Settings(workers=1, long_workers=1), lambda _: None)
    running.speed_up()
    assert factory.opened == []
    running.close()


def test_workers_share_an_engine_that_is_the_only_one() -> None:
    running = fake_deployment().start(TWO_CORES, lambda _: None)
    running.separate_memory()
    assert len(running.scheduler.engines) == 1
    running.close()


# Idle cores, lent to a long document.


class ShiftedEngine(FakeEngine):
    """A fake whose answers differ from the others'."""

    shift = 0.01

    def run(self, ids: Ids, lengths: Ids, **options: bool) -> Output:
        output = super().run(ids, lengths, **options)
        shifted = output.logits + self.shift * np.arange(self.labels, dtype=np.float32)
        return replace(output, logits=shifted)


class ShiftedFactory(FakeFactory):
    def open(self, *, threads: int, own_memory: bool) -> FakeEngine:
        del own_memory
        self.opened.append(ShiftedEngine(self.first.labels, threads=threads))
        return self.opened[-1]


@pytest.mark.parametrize(("kind", "threads"), [(FakeFactory, 2), (ShiftedFactory, 0)])
def test_cores_are_lent_only_if_the_answer_stays_the_same(
    kind: type[FakeFactory], threads: int
) -> None:
    factory = kind(FakeEngine(len(LABELS)))
    deployment = replace(fake_deployment(factory.first), factory=factory)
    running = deployment.start(TWO_CORES, lambda _: None)
    try:
        in_a_thread(running)
        (wide,) = factory.opened
        assert wide.info.threads == 2
        assert running.scheduler.all_cores_threads == threads
        assert wide.closed == (threads == 0)
    finally:
        running.close()


def test_onnx_runtime_lends_with_the_same_answer_at_the_priority_of_long_documents(
    bundle: Bundle,
) -> None:
    opened = open_with_factory(bundle, engine="onnxruntime", device="cpu")
    model = replace(describe(bundle, TWO_CORES), vocab_size=10)
    deployment = Deployment(model, opened.engine, tokenizer(), opened.factory)
    before = thread_ids()
    running = deployment.start(TWO_CORES, lambda _: None)
    try:
        workers = thread_ids() - before
        in_a_thread(running)
        assert running.scheduler.all_cores_threads == 2
        (wide,) = running.scheduler.engines - {opened.engine}
        ids = np.random.default_rng(0).integers(0, 10, (1, 251))
        alone = opened.engine.run(ids, np.array([251])).logits
        np.testing.assert_allclose(wide.run(ids, np.array([251])).logits, alone, atol=1e-5)
        helpers = thread_ids() - before - workers
        assert len(helpers) == 1
        if can_lower_priority():
            policy = running.scheduler.policy
            nice = os.getpriority(os.PRIO_PROCESS, 0) + policy.niceness + policy.long_niceness
            assert os.getpriority(os.PRIO_PROCESS, helpers.pop()) == min(19, nice)
    finally:
        running.close()


def test_pytorch_serves_all_workers_with_one_engine(bundle: Bundle) -> None:
    assert open_with_factory(bundle, engine="torch", device="cpu").factory is None


def in_a_thread(running: Running) -> None:
    """Lending lowers the priority of the thread that asks for it."""
    before = thread_ids()
    thread = threading.Thread(target=running.use_all_cores)
    thread.start()
    native = thread.native_id
    thread.join(30)
    wait_until(lambda: native not in thread_ids() or native in before)


def thread_ids() -> set[int]:
    return {int(path.name) for path in Path("/proc/self/task").iterdir()}
