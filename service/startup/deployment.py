"""What is served: a model, the engine that runs it, and all that is built around them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from models.bundle import Bundle
from models.description import WindowRecipe
from models.reference import Reference
from service.engines.base import Engine, EngineFactory
from service.logs import service as log
from service.pipeline import Pipeline
from service.scheduling.cores import can_lower_priority, lower_priority, own_cores, usable_cores
from service.scheduling.policy import Policy
from service.scheduling.scheduler import BatchRun, Scheduler
from service.settings import Settings
from service.startup.selection import choose_engine, find_bundle
from service.startup.selftest import (
    CANARY,
    TOLERANCE,
    SelfTest,
    check_reference,
    difference_between,
    run_self_test,
    try_groups,
)
from service.text.tokenizer import Reader

_BATCH_TOKENS, _BATCH_TOKENS_ON_GPU = 1024, 16_384  # a core's caches hold no more
_LONG_CANARY = 40 * CANARY  # some 2,000 tokens: enough for several threads to share
_BELOW_THE_EVENT_LOOP = 3  # niceness: requests are answered while every worker is busy
_LONG_BELOW_SHORT = 5  # niceness: a quarter of a core is left to a long document


@dataclass(frozen=True)
class Model:
    """What the service says of the network it serves."""

    name: str
    version: str
    task: str
    labels: tuple[str, ...]
    attention: str
    attention_params: Mapping[str, Any]
    max_tokens: int
    vocab_size: int
    digest: str
    accuracy: Mapping[str, Any]
    certificate: Mapping[str, Any]
    windows: WindowRecipe | None = None
    additive: bool = True  # whether logits are sums over tokens, so that evidence is exact


@dataclass(frozen=True)
class Deployment:
    """A model that is loaded and not yet checked; `start` checks it and starts the workers."""

    model: Model
    engine: Engine
    tokenizer: Tokenizer
    factory: EngineFactory | None = None  # opens further engines; None: all workers share one
    reference: Reference | None = None  # what the self-test compares with

    def start(self, settings: Settings, observe: Callable[[BatchRun], None]) -> Running:
        """Run the self-test, fit the cost model, start the workers."""
        windows = self.model.windows or WindowRecipe(overlap=settings.window_overlap)
        reader = Reader(self.tokenizer, self.model.max_tokens, windows.overlap, windows.merge)
        canary = reader.read(CANARY, "truncate").ids
        clock = work_clock(self.engine)
        self_test, cost = run_self_test(
            self.engine, canary, self.model.max_tokens, self.model.vocab_size, clock
        )
        if self.reference is not None:
            largest, _ = check_reference(
                self.engine, lambda text: reader.read(text, "truncate").ids, self.reference
            )
            self_test = replace(self_test, from_float32=largest)
        policy = choose_policy(settings, self, batching=self_test.batching)
        scheduler = Scheduler(self.engine, cost, policy, work_clock=clock, observe=observe)
        pipeline = Pipeline(
            self.model.labels,
            reader,
            scheduler,
            self_test.bytes_per_token,
            exact_evidence=self.model.additive,
        )
        return Running(self, settings, self_test, scheduler, pipeline)


@dataclass(frozen=True)
class Running:
    """A deployment whose self-test is done and whose workers run."""

    deployment: Deployment
    settings: Settings
    self_test: SelfTest
    scheduler: Scheduler
    pipeline: Pipeline

    def speed_up(self) -> None:
        """What makes it faster but can wait until it answers; each document is right without it."""
        self.pipeline.reader.speed_up()
        self.separate_memory()
        self.share_runs()
        self.use_all_cores()

    def separate_memory(self) -> None:
        """Give each further core an engine with memory of its own, so that none waits for another.

        The two workers of a core share it: taking turns, they find its weights where the other
        left them.
        """
        factory, further = self.deployment.factory, self.scheduler.policy.workers - 1
        if factory is not None and further:
            opened = [factory.open(threads=1, own_memory=True) for _ in range(further)]
            self.scheduler.adopt(engines=opened)

    def share_runs(self) -> None:
        """Find out which documents had better share a run, and let them."""
        if not self.self_test.batching:
            return
        engine, model = self.deployment.engine, self.deployment.model
        below, saving = try_groups(engine, model.max_tokens, model.vocab_size, work_clock(engine))
        self.scheduler.adopt(batch_below=below, batch_saving=saving)

    def use_all_cores(self) -> None:
        """Let a long document that is alone use all cores.

        The threads that help it are no more urgent than a worker for long documents: they take
        their priority from the calling thread, which is lowered and should have nothing else to do.
        """
        policy, factory = self.scheduler.policy, self.deployment.factory
        if factory is None or policy.workers < 2 or not policy.long_workers:
            return
        if policy.niceness + policy.long_niceness:
            lower_priority(policy.niceness + policy.long_niceness)
        wide = factory.open(threads=policy.workers, own_memory=False)
        ids = self.pipeline.reader.read(_LONG_CANARY, "truncate").ids
        difference = difference_between(self.deployment.engine, wide, ids)
        if difference <= TOLERANCE:
            self.scheduler.adopt(all_cores=wide)
        else:
            wide.close()
            log.warning(
                "answers depend on the number of threads by %.1e, more than %.0e: each run has one",
                difference,
                TOLERANCE,
            )

    def close(self, timeout: float | None = None) -> bool:
        """End the workers and close the engines; false when a run did not end in time."""
        ended = self.scheduler.close(timeout)
        if ended:
            for engine in self.scheduler.engines:
                engine.close()
        return ended


def load_deployment(settings: Settings) -> Deployment:
    """Open what the settings name; errors say what to change."""
    bundle = find_bundle(settings)
    opened = choose_engine(settings, bundle)
    model, tokenizer = describe(bundle, settings), load_tokenizer(bundle)
    return Deployment(model, opened.engine, tokenizer, opened.factory, bundle.reference())


def load_tokenizer(bundle: Bundle) -> Tokenizer:
    """The bundle's tokenizer."""
    return bundle.tokenizer()


def describe(bundle: Bundle, settings: Settings) -> Model:
    """What a bundle says of itself, as far as callers need it."""
    manifest = bundle.manifest
    name = settings.precision
    if settings.engine == "openvino":
        name = f"openvino-{name}"
    known = (*manifest.graphs, *manifest.computed)
    certified = next((each for each in known if each == name), None)
    return Model(
        name=manifest.name,
        version=manifest.version,
        task=manifest.task,
        labels=manifest.labels,
        attention=manifest.config.attention,
        attention_params=manifest.config.to_dict()["attention_params"],
        max_tokens=manifest.max_tokens,
        vocab_size=manifest.config.vocab_size,
        digest=bundle.digest,
        accuracy=_scalars(manifest.evaluation),
        certificate=_scalars(bundle.certificate(certified)) if certified else {},
        windows=manifest.windows,
        additive=manifest.config.additive,
    )


def choose_policy(settings: Settings, deployment: Deployment, *, batching: bool) -> Policy:
    """The scheduler's policy for this machine, from the settings; without batching, none share."""
    on_gpu = deployment.engine.info.device != "cpu"
    cores = 1 if on_gpu else usable_cores()
    prioritised = can_lower_priority() and not on_gpu
    spare = 0 if on_gpu else (cores if prioritised else max(1, cores - 1))
    long_workers = spare if settings.long_workers is None else settings.long_workers
    workers = settings.workers
    if workers is None:
        workers = cores if prioritised or on_gpu else max(1, cores - long_workers)
    return Policy(
        workers=workers,
        long_workers=long_workers,
        niceness=_BELOW_THE_EVENT_LOOP if prioritised else 0,
        long_niceness=_LONG_BELOW_SHORT if prioritised else 0,
        cores=own_cores() if prioritised and workers == cores else (),
        short_first_share=settings.short_first_share,
        queue_seconds=settings.queue_seconds,
        max_batch_size=settings.max_batch_size if batching else 1,
        max_batch_tokens=_BATCH_TOKENS_ON_GPU if on_gpu else _BATCH_TOKENS,
        max_running_tokens=settings.max_running_tokens
        or (workers + long_workers) * deployment.model.max_tokens,
    )


def work_clock(engine: Engine) -> Callable[[], float]:
    """What measures a run's work: the worker's own processor time where that does it all."""
    own_thread = engine.info.device == "cpu" and engine.info.engine != "fake"
    return time.thread_time if own_thread else time.perf_counter


def _scalars(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """The plain figures of a report, without its tables."""
    return {
        name: value
        for name, value in mapping.items()
        if isinstance(value, bool | int | str) or (isinstance(value, float) and np.isfinite(value))
    }
