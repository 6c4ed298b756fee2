"""How the scheduler decides, as values: chosen by the deployment, read by the scheduler."""

from __future__ import annotations

from dataclasses import dataclass

_NICE_STEP = 1.25  # how much less of a core one step of niceness gets (Linux)


@dataclass(frozen=True)
class Policy:
    """How the scheduler decides. Times are in seconds.

    lanes           threads for short documents
    long_lanes      further threads for long documents; 0 sends everything to `lanes`
    nice            by how much every lane stands below the event loop; 0 where it cannot
    long_nice       by how much the long lanes stand below the others; 0 where they cannot
    cores           where the lanes stay, one of either kind on each; none: they move freely
    long_work       predicted work from which a document counts as long, when the lanes start
    short_first_share  share of documents, the shortest ones, that go before the others
    overtake        how long newer, shorter documents may pass one that is none of those
    list_delay      how many times the work before it later a request's next document counts
    bulk_yield      how long bulk work lets newer interactive work pass
    queue_seconds   predicted wait above which requests are refused
    group_size      most documents in one run
    group_tokens    most tokens, padding included, in one run of several documents
    group_below     documents of more tokens than this run alone
    group_saving    what each further document in a run saves; half of it may go into padding
    tokens_running  most tokens in all runs at once
    keep_memory     how long lanes keep the memory of large runs after the last of them
    """

    lanes: int = 1
    long_lanes: int = 1
    nice: int = 0
    long_nice: int = 5
    cores: tuple[int, ...] = ()
    long_work: float = 0.1
    short_first_share: float = 0.5
    overtake: float = 4.0
    list_delay: float = 10.0
    bulk_yield: float = 5.0
    queue_seconds: float = 3.0
    group_size: int = 8
    group_tokens: int = 4096
    group_below: int = 0
    group_saving: float = 0.0
    tokens_running: int = 131_072
    keep_memory: float = 2.0

    @property
    def long_share(self) -> float:
        """Share of a core that a long lane keeps while every fast lane is busy."""
        weight = _NICE_STEP**-self.long_nice
        return weight / (1 + weight)
