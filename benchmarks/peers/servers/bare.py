"""No server: one session of one thread per core, longest documents first.

Reads `{"texts": {name: [text, …]}, "tokenized": …, "batched": …}` from standard input; writes for
each name the seconds of all its texts together and of each, and the scores, as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any

from benchmarks.peers.servers.model import Answer, Model, bundle_path

#: Documents and tokens of a batch, and tokens of a document in it: what gained most here.
_BATCH_DOCUMENTS, _BATCH_TOKENS, BATCH_BELOW = 8, 1024, 512


def plan_runs(lengths: list[int], *, batched: bool) -> list[list[int]]:
    """The documents of each run, by number, the shortest run first."""
    runs: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda index: lengths[index]):
        joins = (
            batched
            and runs
            and lengths[index] <= min(BATCH_BELOW, 1.1 * lengths[runs[-1][0]])
            and len(runs[-1]) < _BATCH_DOCUMENTS
            and lengths[index] * (len(runs[-1]) + 1) <= _BATCH_TOKENS
        )
        if joins:
            runs[-1].append(index)
        else:
            runs.append([index])
    return runs


def classify_all(
    models: list[Model], texts: list[str], *, tokenized: bool, batched: bool
) -> dict[str, Any]:
    """Classify all texts, a thread for each model."""
    rows = models[0].tokenize(texts)
    waiting = plan_runs([len(row) for row in rows], batched=batched)
    answers: list[Answer] = [{} for _ in texts]
    each = [0.0] * len(texts)

    def work(model: Model) -> None:
        while True:
            try:
                batch = waiting.pop()
            except IndexError:
                return
            began = time.perf_counter()
            ids = (
                [rows[i] for i in batch] if tokenized else model.tokenize([texts[i] for i in batch])
            )
            found = model.run(ids)
            seconds = (time.perf_counter() - began) / len(batch)
            for index, answer in zip(batch, found, strict=True):
                answers[index], each[index] = answer, round(seconds, 6)

    threads = [threading.Thread(target=work, args=(model,)) for model in models]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - began
    return {"seconds": seconds, "each": each, "scores": [answer["scores"] for answer in answers]}


def main() -> None:
    """Classify each list; the longest text of all, once by each session, is the warm-up."""
    wanted = json.load(sys.stdin)
    lists: dict[str, list[str]] = wanted["texts"]
    models = [Model(bundle_path(), threads=1) for _ in range(len(os.sched_getaffinity(0)))]
    longest = max((text for texts in lists.values() for text in texts), key=len)
    for model in models:
        model.classify([longest])
    how = {name: wanted[name] for name in ("tokenized", "batched")}
    found = {name: classify_all(models, texts, **how) for name, texts in lists.items()}
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
