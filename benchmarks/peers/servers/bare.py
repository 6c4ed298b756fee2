"""The limit: no HTTP, one session of one thread per core, longest documents first.

Reads lists of texts by name as JSON from standard input; writes for each name its documents per
second from text to scores, and the scores, as JSON to standard output.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time

from benchmarks.peers.servers.model import Answer, Model, bundle_path


def classify_all(models: list[Model], texts: list[str]) -> tuple[float, list[Answer]]:
    """Seconds for all texts, a thread for each model; and the answers in the texts' order."""
    waiting = sorted(range(len(texts)), key=lambda index: len(texts[index]))
    answers: list[Answer] = [{} for _ in texts]

    def lane(model: Model) -> None:
        while True:
            try:
                index = waiting.pop()
            except IndexError:
                return
            answers[index] = model.classify([texts[index]])[0]

    threads = [threading.Thread(target=lane, args=(model,)) for model in models]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - began, answers


def main() -> None:
    """Classify each list; the longest text of all, once by each session, is the warm-up."""
    lists: dict[str, list[str]] = json.load(sys.stdin)
    models = [Model(bundle_path(), threads=1) for _ in range(len(os.sched_getaffinity(0)))]
    longest = max((text for texts in lists.values() for text in texts), key=len)
    for model in models:
        model.classify([longest])
    found = {}
    for name, texts in lists.items():
        seconds, answers = classify_all(models, texts)
        found[name] = {"seconds": seconds, "scores": [answer["scores"] for answer in answers]}
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
