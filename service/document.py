"""One text on its way: tokenized, its windows run, their outputs merged; all on worker threads."""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from collections import deque
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from service.engines.base import Floats
from service.scheduling.jobs import Call, Caller, Inference
from service.scheduling.scheduler import JobResult
from service.text.evidence import cut_passages, weigh
from service.text.merge import Result, WindowOutput, merge
from service.text.tokenizer import Reading, Window

if TYPE_CHECKING:
    from service.pipeline import Options, Pipeline

Span = tuple[float, float]  # when something began and ended


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
        if self.options.evidence == 0 and reader.is_quick(self.text):
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
        self.pipeline.look_for_room()
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
        self.pipeline.look_for_room()
