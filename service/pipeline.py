"""Classify texts: tokenize each, split it into windows, run them on the workers, merge.

Each text is a `Document`, which does that on worker threads; the event loop waits for its future.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from models.windows import Overflow
from service.document import Document, Span
from service.errors import DeadlinePassed, Draining, InvalidRequest, Overloaded
from service.scheduling.jobs import Call, Caller
from service.scheduling.scheduler import Scheduler
from service.text.merge import Result
from service.text.tokenizer import Reader, Reading

_AT_ONCE = 4  # texts of a request, and windows of a text, that are queued at once for each worker


@dataclass(frozen=True, slots=True)
class Options:
    """How a request wants its texts classified."""

    top_k: int | None = None
    on_overflow: Overflow = "window"
    evidence: int = 0
    timeout: float = 30.0


@dataclass(slots=True)
class Answer:
    """A request's results, and where its time went, in seconds of wall-clock time.

    infer     while at least one of its windows was running
    tokenize  while at least one of its texts was being tokenized, and none of its windows ran
    queue     the rest: waiting for workers
    total     the sum of the three
    """

    results: list[Result]
    tokenize: float
    queue: float
    infer: float
    total: float


@dataclass(slots=True)
class Estimate:
    """What classifying one text would take."""

    tokens: int
    windows: int
    seconds: Annotated[float, Field(description="Predicted work of one core.")]
    memory_bytes: Annotated[int, Field(description="Predicted memory of its longest run.")]


@dataclass(slots=True)
class Forecast:
    """What a request would take if it came now."""

    estimates: list[Estimate]
    queue_seconds: Annotated[float, Field(description="Predicted wait before it starts.")]
    latency_seconds: Annotated[float, Field(description="Predicted time until its answer.")]
    would_be_admitted: bool


class Pipeline:
    """Classifies texts with one model."""

    def __init__(
        self,
        labels: Sequence[str],
        reader: Reader,
        scheduler: Scheduler,
        bytes_per_token: float = 0.0,
        *,
        exact_evidence: bool = True,
    ) -> None:
        self.labels = list(labels)
        self.reader = reader
        self.scheduler = scheduler
        self.bytes_per_token = bytes_per_token
        self.exact_evidence = exact_evidence  # where it is not, there is none
        self.observe_wasted: Callable[[int], object] = lambda _tokens: None
        self._promised = 0.0  # predicted seconds of all that is admitted and not answered
        self._waiters: deque[asyncio.Future[None]] = deque()  # bulk requests, for room

    @property
    def at_once(self) -> int:
        """How many texts of a request, or windows of a text, are queued at once."""
        return _AT_ONCE * self.scheduler.policy.workers

    async def classify(
        self, texts: Sequence[str], options: Options, *, bulk: bool = False
    ) -> Answer:
        """Classify texts within the time allowed, or raise what stopped it."""
        caller = Caller(time.monotonic(), bulk)
        works = [self._work(self.reader.guess(text)) for text in texts]
        total = sum(works)
        deadline = asyncio.timeout(options.timeout)
        try:
            async with deadline:
                if bulk:
                    await self._wait_for_room(works, options)
                else:
                    self._admit(works, options)
                self._promised += total
                try:
                    ahead = itertools.accumulate(works, initial=0.0)
                    documents = [
                        Document(self, text, options, caller, before)
                        for text, before in zip(texts, ahead, strict=False)
                    ]
                    results = await self._run(documents, works)
                finally:
                    self._promised -= total
        except TimeoutError:
            if deadline.expired():
                raise DeadlinePassed(options.timeout) from None
            raise
        return _answer(results, documents, caller.arrival)

    async def _run(self, documents: Sequence[Document], works: Sequence[float]) -> list[Result]:
        """Run a few documents at a time; when one fails or the caller leaves, drop the rest."""
        waiting = iter(zip(documents, works, strict=True))
        running: set[asyncio.Future[Result]] = set()
        try:
            for document, work in itertools.islice(waiting, self.at_once):
                running.add(document.start(work))
            if len(documents) == 1:
                return [await running.pop()]
            while running:
                ended, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                errors = [future.exception() for future in ended]
                if (error := next(filter(None, errors), None)) is not None:
                    raise error
                for document, work in itertools.islice(waiting, len(ended)):
                    running.add(document.start(work))
            return [document.future.result() for document in documents]
        except InvalidRequest as error:
            raise _naming_its_text(error, documents) from None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise Draining(retry_after=1.0) from None  # the scheduler is closed
        finally:
            for future in running:
                future.cancel()
            for document in documents:
                document.future.cancel()

    async def estimate(self, texts: Sequence[str], timeout: float) -> Forecast:
        """What classifying the texts would take, without running them."""
        caller = Caller(time.monotonic())
        try:
            async with asyncio.timeout(timeout):
                estimates = [await self._estimate(text, caller) for text in texts]
        except TimeoutError:
            raise DeadlinePassed(timeout) from None
        heaviest = max(estimate.seconds for estimate in estimates)
        policy, admission = self.scheduler.policy, self.scheduler.admission
        wait = admission.expected_wait(heaviest)
        spread = sum(estimate.seconds for estimate in estimates) / policy.workers
        per_window = max(e.seconds / e.windows for e in estimates)
        return Forecast(
            estimates,
            queue_seconds=wait,
            latency_seconds=wait + admission.slowdown * max(spread, per_window),
            would_be_admitted=wait <= policy.queue_seconds,
        )

    async def _estimate(self, text: str, caller: Caller) -> Estimate:
        call = Call(caller, self.reader.seconds(text), 0.0, lambda: self.reader.read(text))
        self.scheduler.submit(call)
        call.future.add_done_callback(lambda _: self.look_for_room())
        reading: Reading = (await asyncio.wrap_future(call.future)).value
        longest = max(len(window) for window in reading.windows)
        return Estimate(
            tokens=reading.total,
            windows=len(reading.windows),
            seconds=self._work(reading.total),
            memory_bytes=round(longest * self.bytes_per_token),
        )

    def _admit(self, works: Sequence[float], options: Options) -> None:
        """Refuse what there is no room or no time for."""
        self.scheduler.admission.admit(max(works), options.timeout)
        if self._promised and len(works) > 1:
            finish = (self._promised + sum(works)) / self.scheduler.policy.workers
            if finish > options.timeout:
                raise Overloaded(retry_after=finish - options.timeout)

    async def _wait_for_room(self, works: Sequence[float], options: Options) -> None:
        """Wait behind earlier bulk requests until the queue takes this one."""
        loop, woken = asyncio.get_running_loop(), False
        while True:
            waiter = loop.create_future()  # before looking: what ends from now on wakes it
            (self._waiters.appendleft if woken else self._waiters.append)(waiter)
            try:
                self._admit(works, options)
            except Overloaded:
                woken = await self._woken(waiter)
            else:
                self._waiters.remove(waiter)
                self.look_for_room()  # there may be some for the next one, too
                return

    async def _woken(self, waiter: asyncio.Future[None]) -> bool:
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
            self.look_for_room()
            raise
        return True

    def look_for_room(self) -> None:
        """Have the next bulk request look for room: something has left the queue. Thread-safe."""
        if self._waiters:
            with suppress(IndexError, RuntimeError):  # none left, or the event loop has ended
                self._waiters[0].get_loop().call_soon_threadsafe(self._wake_next)

    def _wake_next(self) -> None:
        if self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)

    def most_work(self, size: int) -> float:
        """Predicted work of the heaviest document that a body of so many bytes can hold."""
        return self._work(self.reader.guess_from_length(size))

    def _work(self, tokens: int) -> float:
        """Predicted seconds of one core for a document of so many tokens, windows and all."""
        windows, cost = self.reader.window_count(tokens), self.scheduler.cost
        if windows == 1:
            return cost.seconds(tokens)
        overlapping = tokens + (windows - 1) * self.reader.overlap
        return windows * cost.seconds(overlapping // windows)


def _answer(results: list[Result], documents: Sequence[Document], started: float) -> Answer:
    total = time.monotonic() - started
    runs = [span for document in documents for span in document.run_spans]
    infer = min(total, _covered(runs))
    working = min(total, _covered([*runs, *(document.read_span for document in documents)]))
    return Answer(results, working - infer, total - working, infer, total)


def _covered(spans: Iterable[Span]) -> float:
    """Seconds that lie in at least one of the spans."""
    covered, until = 0.0, 0.0
    for start, end in sorted(spans):
        covered += max(0.0, end - max(start, until))
        until = max(until, end)
    return covered


def _naming_its_text(error: InvalidRequest, documents: Sequence[Document]) -> InvalidRequest:
    for index, document in enumerate(documents):
        future = document.future
        if future.done() and not future.cancelled() and future.exception() is error:
            error.fields = [{"field": f"input.{index}", "message": str(error)}]
    return error
