"""Small labelled documents for the tests of training: three classes that words tell apart."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping
from pathlib import Path

TOPICS = {
    "food": "cook taste bread soup salt oven dish",
    "law": "court judge claim appeal statute order case",
    "sport": "ball goal team match win player score",
}
COMMON = ["the", "of", "and", "to", "in", "is", "was", "that", "for", "it", "with", "as", "on"]


def documents(count: int = 120, seed: int = 0) -> list[dict[str, str]]:
    """Documents of 20 to 200 words, a tenth of which belong to their class."""
    rng = random.Random(seed)
    rows = []
    for number in range(count):
        label = sorted(TOPICS)[number % len(TOPICS)]
        topic = TOPICS[label].split()
        words = [
            rng.choice(topic) if rng.random() < 0.1 else rng.choice(COMMON)
            for _ in range(rng.randint(20, 200))
        ]
        rows.append({"text": " ".join(words), "label": label})
    return rows


def write_jsonl(path: Path, rows: Iterable[Mapping[str, object]]) -> Path:
    """One JSON object a line."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path
