"""Who is let in: what a document would wait for, by predicted work, not by a number of requests."""

from __future__ import annotations

import math

from service.errors import Overloaded
from service.scheduling.cost import CostModel
from service.scheduling.policy import Policy
from service.scheduling.workers import Tier

_FORGET = 0.95  # weight of what was before, at each new run


class Admission:
    """Predicts waits from what the two tiers hold, and refuses what there is no room for."""

    def __init__(self, cost: CostModel, policy: Policy, fast: Tier, long: Tier) -> None:
        self._cost, self._policy, self._fast, self._long = cost, policy, fast, long
        # The border between the tiers is a length, found once: predictions change with every fit,
        # and equal documents in both tiers at once would take the cores' caches from each other.
        self.long_tokens = cost.tokens(policy.long_work)
        self._recent_seconds = self._recent_work = 1e-3  # of the fast lanes' last runs

    def is_long(self, work: float) -> bool:
        """Whether a document of so much predicted work goes to the long lanes."""
        tokens, policy = self.long_tokens, self._policy
        border = policy.long_work if math.isinf(tokens) else self._cost.seconds(tokens)
        return policy.long_lanes > 0 and work >= border

    def expected_wait(self, work: float) -> float:
        """Predicted seconds until a document of so much work would start.

        Short documents wait for short ones only. Long ones wait for the long ones before them,
        while short ones leave them no more than their share of the cores.
        """
        if not self.is_long(work):
            return self._short_wait
        fast, long = self._fast.backlog, self._long.backlog
        taken_by_short = min(fast, long * (1 / self._policy.long_share - 1))
        return self.slowdown * (long + taken_by_short) / self._policy.long_lanes

    @property
    def _short_wait(self) -> float:
        return self.slowdown * self._fast.backlog / self._policy.lanes

    @property
    def slowdown(self) -> float:
        """How many seconds a fast lane lately needed for a second of work.

        More than one where other programs, or the limits of a container, take their part.
        """
        return max(1.0, self._recent_seconds / self._recent_work)

    def learn_pace(self, seconds: float, work: float) -> None:
        """Learn from a fast lane's run; to be called by one thread at a time."""
        self._recent_seconds = _FORGET * self._recent_seconds + seconds
        self._recent_work = _FORGET * self._recent_work + max(work, 1e-6)

    def admit(self, work: float, patience: float) -> None:
        """Refuse a request that the queue is too full for, or that would wait past its time."""
        wait = self.expected_wait(work)
        if wait > self._policy.queue_seconds:
            raise self._refusal(wait)
        if wait > patience:
            raise Overloaded(retry_after=wait - patience)

    @property
    def crowded(self) -> bool:
        """Whether short documents are refused; if not, there is room for something."""
        return self._short_wait > self._policy.queue_seconds

    def is_full(self, most_work: float) -> bool:
        """Whether there is no room for a document of at most so much work, short or long."""
        if not self.crowded:
            return False
        long = self.is_long(most_work)
        return not long or self.expected_wait(most_work) > self._policy.queue_seconds

    def refuse_if_full(self, most_work: float) -> None:
        """Refuse, before any work on it, what there is no room for."""
        if self.is_full(most_work):
            raise self._refusal(min(self._short_wait, self.expected_wait(most_work)))

    def _refusal(self, wait: float) -> Overloaded:
        return Overloaded(retry_after=wait - self._policy.queue_seconds / 2)
