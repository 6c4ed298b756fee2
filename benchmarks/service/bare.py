"""The limit: text to logits in a loop, no server, with the best order known beforehand.

It tokenizes as the service does: what is compared is all that the service does besides.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from benchmarks.service.documents import Document
from models.bundle import load_bundle
from service.engines import open_with_factory
from service.engines.base import Engine
from service.scheduling.cores import usable_cores
from service.text.tokenizer import Reader

ALONE, TOGETHER = "alone", "in groups"
#: Documents and tokens of a group, and tokens of a document in it: what gained most on this graph.
_GROUP_SIZE, _GROUP_TOKENS, GROUP_BELOW = 8, 1024, 512


class BareEngine:
    """A thread with a single-thread session of its own for each core, longest documents first."""

    def __init__(self, bundle: Path) -> None:
        loaded = load_bundle(bundle)
        opened = open_with_factory(loaded, threads=1)
        factory = opened.factory
        self._engines = [
            opened.engine if factory is None else factory.open(threads=1, own_memory=True)
            for _ in range(usable_cores())
        ]
        tokenizer = Tokenizer.from_file(str(bundle / "tokenizer.json"))
        self._reader = Reader(tokenizer, loaded.manifest.max_tokens, overlap=0)
        self._reader.speed_up()

    def rate(self, documents: Sequence[Document], schedule: str = ALONE) -> float:
        """Documents per second; short ones of about the same length may share a run."""
        waiting = plan_runs(documents, schedule)
        for group in waiting[:: max(1, len(waiting) // 4)]:  # the first runs allocate
            for engine in self._engines:
                self._run(engine, group)

        def lane(engine: Engine) -> None:
            while True:
                try:
                    group = waiting.pop()
                except IndexError:
                    return
                self._run(engine, group)

        threads = [threading.Thread(target=lane, args=(engine,)) for engine in self._engines]
        began = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return len(documents) / (time.perf_counter() - began)

    def _run(self, engine: Engine, group: Sequence[Document]) -> None:
        read = [self._reader.read(document.text).ids for document in group]
        lengths = np.array([len(each) for each in read])  # (batch,)
        ids = np.zeros((len(group), lengths.max()), dtype=np.int64)  # (batch, n)
        for row, each in zip(ids, read, strict=True):
            row[: len(each)] = each
        engine.run(ids, lengths)


def plan_runs(documents: Sequence[Document], schedule: str) -> list[list[Document]]:
    """The documents of each run, the shortest run first."""
    runs: list[list[Document]] = []
    for document in sorted(documents, key=lambda document: document.tokens):
        joins = (
            schedule == TOGETHER
            and runs
            and document.tokens <= min(GROUP_BELOW, 1.1 * runs[-1][0].tokens)
            and len(runs[-1]) < _GROUP_SIZE
            and document.tokens * (len(runs[-1]) + 1) <= _GROUP_TOKENS
        )
        if joins:
            runs[-1].append(document)
        else:
            runs.append([document])
    return runs
