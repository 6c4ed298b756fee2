"""How a classifier is trained: every number of the recipe, in one place."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

#: Of a network that starts from nothing: its learning rate, and tokens per step.
BLANK_RATE, BLANK_BATCH = 2e-3, 2048


@dataclass(frozen=True)
class Recipe:
    """The training of the whole network, which starts from the best bag of tokens.

    vocabulary      entries of a vocabulary that is learnt
    pair_entries    entries of the table of token pairs, shared out among as many numbers a pair
                    as it takes to tell the labels apart
    budget          tokens to train on, in millions; None is `PASSES` over the training documents
    crop            longest piece of a document at a step
    last_crop       the same for the last quarter of the steps
    batch_tokens    tokens per step
    rate            learning rate of the blocks; embeddings and head stay as the bag has them
    weight_decay    of the blocks' matrices
    warm_up         share of the budget over which the rates rise; then they fall to 0
    clip            largest norm of the gradient
    average         decay of the running average of weights, which is what is kept
    distillation    weight of the TF-IDF teacher's probabilities in the target
    checks          how often the validation documents are read
    patience        checks without a gain after which training stops
    """

    vocabulary: int = 12_288
    pair_entries: int = 1 << 19
    budget: float | None = None
    crop: int = 1024
    last_crop: int = 2048
    batch_tokens: int = 8192
    rate: float = 5e-4
    weight_decay: float = 0.05
    warm_up: float = 0.05
    clip: float = 1.0
    average: float = 0.998
    distillation: float = 0.5
    checks: int = 4
    patience: int = 3
    seed: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as JSON holds them."""
        return asdict(self)
