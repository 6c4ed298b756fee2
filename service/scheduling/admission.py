"""Who is let in: what a document would wait for, by predicted work, not by a number of requests."""

from __future__ import annotations

from service.errors import Overloaded
from service.scheduling.state import State

_FORGET = 0.95  # weight of what was before, at each new run


class Admission:
    """Predicts waits from the state, and refuses what there is no room for."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._recent_seconds = self._recent_work = 1e-3  # of the short documents' last runs

    @property
    def long_tokens(self) -> float:
        """The length from which a document is long."""
        return self._state.long_tokens

    def is_long(self, work: float) -> bool:
        """Whether a document of so much predicted work belongs to the long ones."""
        return self._state.is_long(work)

    def expected_wait(self, work: float) -> float:
        """Predicted seconds until a document of so much work would start.

        Short documents wait for short ones only. Long ones wait for the long ones before them,
        while short ones leave them no more than their share of the cores.
        """
        if not self.is_long(work):
            return self._short_wait
        fast, long = self._state.short.backlog, self._state.long.backlog
        taken_by_short = min(fast, long * (1 / self._state.policy.long_share - 1))
        return self.slowdown * (long + taken_by_short) / self._state.policy.long_workers

    @property
    def _short_wait(self) -> float:
        return self.slowdown * self._state.short.backlog / self._state.policy.workers

    @property
    def slowdown(self) -> float:
        """How many seconds a worker for short documents lately needed for a second of work.

        More than one where other programs, or the limits of a container, take their part.
        """
        return max(1.0, self._recent_seconds / self._recent_work)

    def learn_pace(self, seconds: float, work: float) -> None:
        """Learn from a run of short documents; to be called by one thread at a time."""
        self._recent_seconds = _FORGET * self._recent_seconds + seconds
        self._recent_work = _FORGET * self._recent_work + max(work, 1e-6)

    def admit(self, work: float, patience: float) -> None:
        """Refuse a request that the queue is too full for, or that would wait past its time."""
        wait = self.expected_wait(work)
        if wait > self._state.policy.queue_seconds:
            raise self._refusal(wait)
        if wait > patience:
            raise Overloaded(retry_after=wait - patience)

    @property
    def crowded(self) -> bool:
        """Whether short documents are refused; if not, there is room for something."""
        return self._short_wait > self._state.policy.queue_seconds

    def is_full(self, most_work: float) -> bool:
        """Whether there is no room for a document of at most so much work, short or long."""
        if not self.crowded:
            return False
        long = self.is_long(most_work)
        return not long or self.expected_wait(most_work) > self._state.policy.queue_seconds

    def refuse_if_full(self, most_work: float) -> None:
        """Refuse, before any work on it, what there is no room for."""
        if self.is_full(most_work):
            raise self._refusal(min(self._short_wait, self.expected_wait(most_work)))

    def _refusal(self, wait: float) -> Overloaded:
        return Overloaded(retry_after=wait - self._state.policy.queue_seconds / 2)
