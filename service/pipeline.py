"""Classify texts: tokenize each, split it into windows, run them on the workers, merge.

Each text is a `Document`, which does that on worker threads; the event loop waits for its future.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.windows import Overflow
from service.engines.base import Floats
from service.errors import DeadlinePassed, Draining, InvalidRequest, Overloaded
from service.room import Room
from service.scheduling.jobs import Call, Caller, Inference, JobResult
from service.scheduling.scheduler import Scheduler
from service.text.evidence import cut_passages, weigh
from service.text.merge import Result, WindowOutput, merge
from service.text.tokenizer import Reader, Reading, Window

Span = tuple[float, float]  # when something began and ended

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


class Document:
    """One text of a request: read, its windows run, merged by the worker that ends the last one.

    `future` gets its result; cancelling that drops all of it that does not run yet.
    """

    def __init__(
        self, pipeline: Pipeline, text: str, options: Options, caller: Caller, ahead: float
    ) -> None:
        self.pipeline, self.text, self.options = pipeline, text, options
        self.caller, self.ahead = caller, ahead
        self.future: Future[Result] = Future()
        self.reading: Reading | None = None
        self.read_span: Span = (0.0, 0.0)
        self.run_spans: list[Span] = []
        self._passages: NDArray[np.int64] | None = None
        self._lock = threading.Lock()
        self._settled = False
        self._waiting: deque[tuple[int, Window]] = deque()  # windows that are not queued yet
        self._queued: dict[int, Future[Any]] = {}
        self._outputs: list[WindowOutput | None] = []

    def start(self, work: float) -> asyncio.Future[Result]:
        """Have the text read, here if that is quicker than to hand it to a worker, and go on."""
        self.future.add_done_callback(self._drop)
        ended = asyncio.wrap_future(self.future)
        reader = self.pipeline.reader
        if self.options.evidence == 0 and len(self.text) <= reader.quick:
            try:
                self._read()
            except Exception as error:  # whatever it was, the caller must know
                self._fail(error)
            return ended
        call = Call(self.caller, reader.seconds(self.text), self.ahead, self._read, work)
        self._queued[-1] = call.future
        self.pipeline.scheduler.submit(call)
        call.future.add_done_callback(self._has_read)
        return ended

    def _read(self) -> None:
        """Tokenize, find the passages when evidence is wanted, and queue the first windows."""
        started = time.monotonic()
        reader, text = self.pipeline.reader, self.text
        with_evidence = self.options.evidence > 0 and self.pipeline.exact_evidence
        reading = reader.read(text, self.options.on_overflow, offsets=with_evidence)
        if with_evidence:
            self._passages = cut_passages(text)
        self.reading, self.read_span = reading, (started, time.monotonic())
        self._outputs = [None] * len(reading.windows)
        self._waiting.extend(enumerate(reading.windows))
        for _ in range(min(len(reading.windows), self.pipeline.at_once)):
            self._queue_next(reading)

    def _has_read(self, call: Future[Any]) -> None:
        if call.cancelled():  # the scheduler is closed
            self.future.cancel()
        elif (error := call.exception()) is not None:
            self._fail(error)

    def _queue_next(self, reading: Reading) -> None:
        """Queue the next window, unless nobody waits for it any more."""
        with self._lock:
            if self._settled or not self._waiting:
                return
            index, window = self._waiting.popleft()
            cost = self.pipeline.scheduler.cost
            tokens = window.end - window.start
            job = Inference(
                self.caller,
                cost.seconds(tokens),
                self.ahead + (cost.seconds(window.start) if window.start else 0.0),
                tokens=tokens,
                ids=reading.ids[window.start : window.end],
                contributions=self._passages is not None,
                finish=functools.partial(self._keep, reading, window),
            )
            self._queued[index] = job.future
        self.pipeline.scheduler.submit(job)
        job.future.add_done_callback(functools.partial(self._has_run, reading, index, job))

    def _keep(
        self, reading: Reading, window: Window, logits: Floats, contributions: Floats | None
    ) -> WindowOutput:
        """What is kept of a run: of the tokens' contributions only the passages' sums."""
        shares = None
        if self._passages is not None and contributions is not None and reading.ends is not None:
            ends = reading.ends[window.start : window.end]
            shares = weigh(self._passages, ends, contributions)
        return WindowOutput(logits.copy(), shares)

    def _has_run(self, reading: Reading, index: int, job: Inference, ended: Future[Any]) -> None:
        """Note a window's output; the last one merges all of them."""
        if ended.cancelled():
            self.future.cancel()
            return
        error = ended.exception()
        if error is not None:
            self._fail(error)
            return
        done: JobResult = ended.result()
        started = job.submitted + done.queued
        with self._lock:
            nobody_waits = self._settled
            self._queued.pop(index, None)
            self._outputs[index] = done.value
            self.run_spans.append((started, started + done.ran))
            all_have_run = len(self.run_spans) == len(self._outputs)
        if self.pipeline.room.waiters:
            self.pipeline.room.look()
        if nobody_waits:
            self.pipeline.observe_wasted(job.tokens)
        elif all_have_run:
            self._merge(reading)
        else:
            self._queue_next(reading)

    def _merge(self, reading: Reading) -> None:
        options = self.options
        outputs = [output for output in self._outputs if output is not None]
        try:
            result = merge(
                self.pipeline.labels,
                self.text,
                reading,
                self._passages,
                outputs,
                top_k=options.top_k,
                evidence=options.evidence,
                how=self.pipeline.reader.merge,
            )
        except Exception as error:  # whatever it was, the caller must know
            self._fail(error)
            return
        if self._settle():
            self.future.set_result(result)

    def _fail(self, error: BaseException) -> None:
        if self._settle():
            self.future.set_exception(error)

    def _settle(self) -> bool:
        """Whether the caller may set the future: true once, and never when it is cancelled."""
        with self._lock:
            first, self._settled = not self._settled, True
        return first and self.future.set_running_or_notify_cancel()

    def _drop(self, _: Future[Result]) -> None:
        """Cancel what is still queued: the future has a result, an error, or was cancelled."""
        with self._lock:
            self._settled = True
            queued = list(self._queued.values())
            self._waiting.clear()
        for future in queued:
            future.cancel()
        if self.pipeline.room.waiters:
            self.pipeline.room.look()


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
        self.room = Room(self.admit)
        #: How many texts of a request, or windows of a text, are queued at once.
        self.at_once = _AT_ONCE * scheduler.policy.workers

    async def classify(
        self, texts: Sequence[str], options: Options, *, bulk: bool = False
    ) -> Answer:
        """Classify texts within the time allowed, or raise what stopped it."""
        caller = Caller(time.monotonic(), bulk)
        works = [self.work(text) for text in texts]
        total = sum(works)
        deadline = asyncio.timeout(options.timeout)
        try:
            async with deadline:
                if bulk:
                    await self.room.wait(works, options.timeout)
                elif len(works) == 1:
                    self.scheduler.admission.admit(total, options.timeout)
                else:
                    self.admit(works, options.timeout)
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

    def admit(self, works: Sequence[float], patience: float) -> None:
        """Refuse what there is no room or no time for."""
        self.scheduler.admission.admit(max(works), patience)
        if self._promised and len(works) > 1:
            finish = (self._promised + sum(works)) / self.scheduler.policy.workers
            if finish > patience:
                raise Overloaded(retry_after=finish - patience)

    def work(self, text: str) -> float:
        """Predicted seconds of one core for a text, windows and all."""
        tokens = self.reader.guess(text)
        if tokens <= self.reader.limit:
            return self.scheduler.cost.seconds(tokens)
        return self.work_of(tokens)

    def work_of(self, tokens: int) -> float:
        """The same for so many tokens."""
        windows, cost = self.reader.window_count(tokens), self.scheduler.cost
        overlapping = tokens + (windows - 1) * self.reader.overlap
        return windows * cost.seconds(overlapping // windows)

    def most_work(self, size: int) -> float:
        """The same for the heaviest text that a body of so many bytes can hold."""
        return self.work_of(self.reader.guess_from_length(size))


def _answer(results: list[Result], documents: Sequence[Document], started: float) -> Answer:
    total = time.monotonic() - started
    runs = [span for document in documents for span in document.run_spans]
    infer = min(total, _covered(runs))
    working = min(total, _covered([*runs, *[document.read_span for document in documents]]))
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
