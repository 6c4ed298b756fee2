"""How the scheduler decides, as values: chosen by the deployment, read by the scheduler."""

from __future__ import annotations

from dataclasses import dataclass

_NICE_STEP = 1.25  # how much less of a core one step of niceness gets (Linux)


@dataclass(frozen=True)
class Policy:
    """How the scheduler decides. Times are in seconds.

    workers              threads for short documents
    long_workers         further threads for long documents; 0 sends everything to `workers`
    niceness             by how much workers stand below the event loop; 0 where they cannot
    long_niceness        by how much those for long documents stand below the others
    cores                where workers stay, one of either kind on each; none: they move freely
    long_work            predicted work from which a document counts as long
    short_first_share    share of documents, the shortest ones, that go before the others
    overtake             how long newer, shorter documents may pass one that is none of those
    list_delay           how much later a request's next document counts as having come, as a
                         multiple of the work before it
    bulk_yield           how much later bulk work counts as having come
    queue_seconds        predicted wait above which requests are refused
    max_batch_size       most documents in one run
    max_batch_tokens     most tokens, padding included, in one run of several documents
    batch_below          documents of more tokens than this run alone
    batch_saving         what each further document in a run saves; half of it may go into padding
    max_running_tokens   most tokens in all runs at once
    keep_memory_seconds  how long the memory of large runs is kept after the last of them
    """

    workers: int = 1
    long_workers: int = 1
    niceness: int = 0
    long_niceness: int = 5
    cores: tuple[int, ...] = ()
    long_work: float = 0.1
    short_first_share: float = 0.5
    overtake: float = 4.0
    list_delay: float = 10.0
    bulk_yield: float = 5.0
    queue_seconds: float = 3.0
    max_batch_size: int = 8
    max_batch_tokens: int = 4096
    batch_below: int = 0
    batch_saving: float = 0.0
    max_running_tokens: int = 131_072
    keep_memory_seconds: float = 2.0

    @property
    def long_share(self) -> float:
        """Share of a core that a long document keeps while short ones want all cores."""
        weight = _NICE_STEP**-self.long_niceness
        return weight / (1 + weight)
