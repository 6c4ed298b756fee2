"""What the scheduler runs, as values: jobs that wait, batches that run, results that come of them.

Jobs are either calls (a function to run on a worker, such as tokenizing) or inferences (token ids
for the engine, which may share a batch with others).
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from service.engines.base import Floats, Ids


@dataclass(frozen=True)
class Caller:
    """A request that asks for jobs: when it came, and whether it is bulk work."""

    arrival: float
    bulk: bool = False


@dataclass(eq=False)
class Job:
    """One unit that a worker runs without a break; `future` gets its result.

    work     predicted seconds of one core
    tokens   that the engine must hold for it
    ahead    work that the same caller asked for before it: documents of one request queue one
             behind the other, so that a long list does not hold up another caller's single one
    future   cancel it to drop the job while it waits
    """

    caller: Caller
    work: float
    ahead: float
    tokens: int = field(default=0, kw_only=True)
    future: Future[Any] = field(default_factory=Future, init=False)
    submitted: float = field(default=0.0, init=False)


@dataclass(eq=False)
class Call(Job):
    """A function to run on a worker; the future gets what it returns.

    `follows` is the predicted work of the inferences that it will submit: it counts as backlog
    until the call has ended.
    """

    function: Callable[[], Any]
    follows: float = 0.0


@dataclass(eq=False)
class Inference(Job):
    """Token ids to run through the engine; the future gets what `finish` makes of the output.

    `finish` takes the document's logits (labels,) and contributions (n, labels) or None, and runs
    on the worker, so that the event loop never works on arrays.
    """

    ids: Ids  # (n,)
    contributions: bool
    finish: Callable[[Floats, Floats | None], Any]
    tokens: int = field(kw_only=True)


@dataclass(frozen=True)
class Batch:
    """Jobs to run together, with the sums of their tokens and work.

    `all_cores`: with the engine that uses every core.
    """

    jobs: tuple[Job, ...]
    tokens: int
    work: float
    all_cores: bool = False


@dataclass(frozen=True)
class JobResult:
    """A job's result with the seconds it waited and ran."""

    value: Any
    queued: float
    ran: float


@dataclass(frozen=True)
class BatchRun:
    """One run of the engine, for the metrics."""

    tokens: tuple[int, ...]
    seconds: float
    waits: tuple[float, ...]
    all_cores: bool = False
