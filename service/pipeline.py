"""The walk of a document: read, run on the lanes, merge its windows, answer."""

from __future__ import annotations

import asyncio
import functools
import itertools
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from service.engines.base import Floats
from service.errors import DeadlinePassed, InvalidRequest, Overloaded
from service.http.schemas import Estimate, EstimateResponse, Result, Timings
from service.scheduling.cost import CostModel
from service.scheduling.queue import Job, Piece, Step, Ticket
from service.scheduling.scheduler import Done, Scheduler
from service.text.evidence import cut_passages, weigh
from service.text.merge import Document, Options, Part, merge
from service.text.tokenizer import Reader, Window

_BULK_RETRY = 0.05  # seconds between a stream's looks at a full queue
_AT_ONCE = 4  # texts or windows of one request that are queued at once, for each lane

_T = TypeVar("_T")


@dataclass
class Answer:
    """A request's results with what they took, in seconds."""

    results: list[Result]
    tokenize: float
    queue: float = 0.0
    infer: float = 0.0
    total: float = 0.0

    def timings_ms(self) -> Timings:
        """For the response."""
        return Timings(
            tokenize=round(self.tokenize * 1000, 3),
            queue=round(self.queue * 1000, 3),
            infer=round(self.infer * 1000, 3),
            total=round(self.total * 1000, 3),
        )


@dataclass(frozen=True)
class Begun:
    """A text that is queued as one job, and its predicted work."""

    job: Job
    work: float


class Pipeline:
    """Classifies texts with one model."""

    def __init__(
        self,
        labels: Sequence[str],
        reader: Reader,
        scheduler: Scheduler,
        bytes_per_token: float = 0.0,
    ) -> None:
        self.labels = list(labels)
        self.reader = reader
        self.scheduler = scheduler
        self.bytes_per_token = bytes_per_token
        self._promised = 0.0  # predicted seconds of all that is admitted and not answered

    @property
    def cost(self) -> CostModel:
        """The scheduler's cost model."""
        return self.scheduler.cost

    async def classify(
        self, texts: Sequence[str], options: Options, *, bulk: bool = False
    ) -> Answer:
        """Classify texts within the time allowed, or raise what stopped it."""
        ticket = Ticket(time.monotonic(), bulk)
        works = [self._work(self.reader.guess(text)) for text in texts]
        ahead = itertools.accumulate(works, initial=0.0)
        tasks = [
            (text, options, ticket, index, before, work)
            for index, (text, before, work) in enumerate(zip(texts, ahead, works, strict=False))
        ]
        total = sum(works)
        try:
            async with asyncio.timeout(options.timeout):
                if bulk:
                    await self._wait_for_room(works, options)
                else:
                    self._admit(works, options)
                self._promised += total
                try:
                    answers = await self._all(self._classify_one, tasks)
                finally:
                    self._promised -= total
        except TimeoutError:
            raise DeadlinePassed(options.timeout) from None
        if len(answers) == 1:
            answers[0].total = time.monotonic() - ticket.arrival
            return answers[0]
        return Answer(
            [answer.results[0] for answer in answers],
            sum(answer.tokenize for answer in answers),
            sum(answer.queue for answer in answers),
            sum(answer.infer for answer in answers),
            time.monotonic() - ticket.arrival,
        )

    def begin(self, text: str, options: Options, done: Callable[[], object]) -> Begun:
        """Admit and queue a text that surely fits into one window, without a task to wait for it.

        A lane calls `done` when `finish` may be asked.
        """
        work = self._work(self.reader.guess(text))
        self._admit((work,), options)
        job = self._first_job(text, options, Ticket(time.monotonic()), 0.0, work)
        if not isinstance(job, Job):
            raise ValueError("the text does not fit into one window")
        self._promised += work
        self.scheduler.submit(job)
        job.future.add_done_callback(lambda _: done())
        return Begun(job, work)

    def finish(self, begun: Begun) -> Answer:
        """The answer to what was begun, or raise what stopped it."""
        self._promised -= begun.work
        try:
            done: Done = begun.job.future.result()
        except InvalidRequest as error:
            raise _at_text(0, error) from None
        answer: Answer = done.value
        answer.queue, answer.infer = done.queued, done.ran
        answer.total = time.monotonic() - begun.job.ticket.arrival
        return answer

    def drop(self, begun: Begun) -> None:
        """Forget what was begun: nobody waits for it any more."""
        self._promised -= begun.work
        begun.job.future.cancel()

    async def estimate(self, texts: Sequence[str], timeout: float) -> EstimateResponse:
        """What classifying the texts would take, without running them."""
        ticket = Ticket(time.monotonic())
        try:
            async with asyncio.timeout(timeout):
                documents = await self._all(self._read_only, [(text, ticket) for text in texts])
        except TimeoutError:
            raise DeadlinePassed(timeout) from None
        estimates = []
        for document in documents:
            reading = document.reading
            longest = max(len(window) for window in reading.windows)
            estimates.append(
                Estimate(
                    tokens=reading.total,
                    windows=len(reading.windows),
                    seconds=self._work(reading.total),
                    memory_bytes=round(longest * self.bytes_per_token),
                )
            )
        heaviest = max(estimate.seconds for estimate in estimates)
        lanes = self.scheduler.policy.lanes
        wait = self.scheduler.admission.expected_wait(heaviest)
        spread = sum(estimate.seconds for estimate in estimates) / lanes
        per_window = max(e.seconds / e.windows for e in estimates)
        return EstimateResponse(
            estimates=estimates,
            queue_seconds=wait,
            latency_seconds=wait + self.scheduler.admission.slowdown * max(spread, per_window),
            would_be_admitted=wait <= self.scheduler.policy.queue_seconds,
        )

    async def _read_only(self, text: str, ticket: Ticket) -> Document:
        call = functools.partial(self._read, text, Options())
        document: Document = (
            await self._on_lane(Step(ticket, self.reader.seconds(text), 0.0, call=call))
        ).value
        return document

    def _admit(self, works: Sequence[float], options: Options) -> None:
        """Refuse what there is no room or no time for."""
        self.scheduler.admission.admit(max(works), options.timeout)
        if self._promised and len(works) > 1:
            finish = (self._promised + sum(works)) / self.scheduler.policy.lanes
            if finish > options.timeout:
                raise Overloaded(retry_after=finish - options.timeout)

    async def _wait_for_room(self, works: Sequence[float], options: Options) -> None:
        while True:
            try:
                return self._admit(works, options)
            except Overloaded:
                await asyncio.sleep(_BULK_RETRY)

    def most_work(self, size: int) -> float:
        """Predicted work of the heaviest document that a body of so many bytes can hold."""
        return self._work(self.reader.guess_from_length(size))

    def _work(self, tokens: int) -> float:
        """Predicted seconds of one core for a document of so many tokens, windows and all."""
        windows = self.reader.window_count(tokens)
        if windows == 1:
            return self.cost.seconds(tokens)
        overlapping = tokens + (windows - 1) * self.reader.overlap
        return windows * self.cost.seconds(overlapping // windows)

    async def _classify_one(
        self, text: str, options: Options, ticket: Ticket, index: int, ahead: float, work: float
    ) -> Answer:
        try:
            first = self._first_job(text, options, ticket, ahead, work)
            done = await self._on_lane(first) if isinstance(first, Job) else Done(first, 0, 0)
        except InvalidRequest as error:
            raise _at_text(index, error) from None
        if isinstance(done.value, Answer):
            done.value.queue, done.value.infer = done.queued, done.ran
            return done.value
        document: Document = done.value
        parts = await self._all(
            self._run_window,
            [
                (document, window, ticket, ahead + self.cost.seconds(window.start))
                for window in document.reading.windows
            ],
        )
        return Answer(
            [merge(self.labels, document, [part.value for part in parts])],
            document.seconds,
            done.queued + sum(part.queued for part in parts),
            sum(part.ran for part in parts),
        )

    def _first_job(
        self, text: str, options: Options, ticket: Ticket, ahead: float, work: float
    ) -> Job | Document:
        """What a lane does first for a text: reads it, or runs it if it was read here and now."""
        call = functools.partial(self._read_and_go_on, text, options, ticket, ahead)
        if options.evidence == 0 and self.reader.is_quick(text):
            return call()
        return Step(ticket, self.reader.seconds(text), ahead, call=call, follows=work)

    def _read(self, text: str, options: Options) -> Document:
        """Tokenize, and find the passages when evidence is wanted."""
        started = time.monotonic()
        with_evidence = options.evidence > 0
        reading = self.reader.read(text, options.on_overflow, offsets=with_evidence)
        passages = cut_passages(text) if with_evidence else None
        return Document(text, options, reading, passages, time.monotonic() - started)

    def _read_and_go_on(
        self, text: str, options: Options, ticket: Ticket, ahead: float
    ) -> Piece | Document:
        """Read; a document of one window goes on at once as the piece that answers it."""
        document = self._read(text, options)
        if len(document.reading.windows) > 1:
            return document

        def answer(part: Part) -> Answer:
            return Answer([merge(self.labels, document, [part])], document.seconds)

        return self._piece(document, document.reading.windows[0], ticket, ahead, answer)

    async def _run_window(
        self, document: Document, window: Window, ticket: Ticket, ahead: float
    ) -> Done:
        return await self._on_lane(self._piece(document, window, ticket, ahead, lambda part: part))

    def _piece(
        self,
        document: Document,
        window: Window,
        ticket: Ticket,
        ahead: float,
        then: Callable[[Part], object],
    ) -> Piece:
        """One window for the engine; of its contributions only the passages' sums are kept."""
        reading, passages = document.reading, document.passages

        def finish(logits: Floats, contributions: Floats | None) -> object:
            shares = None
            if passages is not None and contributions is not None and reading.ends is not None:
                ends = reading.ends[window.start : window.end]
                shares = weigh(passages, ends, contributions)
            return then(Part(logits.copy(), shares))

        return Piece(
            ticket,
            self.cost.seconds(len(window)),
            ahead,
            ids=reading.ids[window.start : window.end],
            contributions=passages is not None,
            finish=finish,
        )

    async def _all(
        self, call: Callable[..., Awaitable[_T]], arguments: Sequence[tuple[Any, ...]]
    ) -> list[_T]:
        """Wait for all, a few at a time; when one fails or the caller leaves, drop the rest."""
        if len(arguments) == 1:
            return [await call(*arguments[0])]
        room = asyncio.Semaphore(_AT_ONCE * self.scheduler.policy.lanes)

        async def in_turn(given: tuple[Any, ...]) -> _T:
            async with room:
                return await call(*given)

        tasks = [asyncio.create_task(in_turn(given)) for given in arguments]
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()

    async def _on_lane(self, job: Job) -> Done:
        loop = asyncio.get_running_loop()
        ended = loop.create_future()

        def wake() -> None:
            if not ended.done():
                ended.set_result(None)

        def tell(_: object) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(wake)

        self.scheduler.submit(job)
        job.future.add_done_callback(tell)
        try:
            await ended
        except asyncio.CancelledError:
            job.future.cancel()
            raise
        if job.future.cancelled():  # the scheduler is closed
            raise asyncio.CancelledError
        done: Done = job.future.result()
        return done


def _at_text(index: int, error: InvalidRequest) -> InvalidRequest:
    """The error, naming the text of the request that it is about."""
    error.fields = [{"field": f"input.{index}", "message": str(error)}]
    return error
