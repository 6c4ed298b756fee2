"""How an encoder is fine-tuned: every number of the recipe, in one place."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from models.windows import Merge
from training.data_options import DataOptions

Half = Literal["auto", "bf16", "fp32"]
Extension = Literal["repeat", "interpolate"]


@dataclass(frozen=True)
class Recipe:
    """The numbers of fine-tuning.

    epochs         passes over the training documents
    rate           learning rate of the head and the last layer
    layer_decay    each layer below has so much of the rate of the one above it
    weight_decay   of matrices
    warm_up        share of the steps over which the rates rise; then they fall to 0
    clip           largest norm of the gradient
    batch_tokens   tokens a step, padding included
    overlap        tokens that neighbouring windows of a document share
    merge          what stands for a document: the mean of its windows, or the surest one
    precision      bf16 where the processor multiplies it faster (auto), or one of the two
    checks         how often the validation documents are read
    patience       checks without a gain after which training stops
    frugal         compute activations again in the backward pass; None: where memory asks for it
    """

    epochs: float = 2.0
    rate: float = 8e-5
    layer_decay: float = 0.9
    weight_decay: float = 0.01
    warm_up: float = 0.06
    clip: float = 1.0
    batch_tokens: int = 8192
    overlap: int = 64
    merge: Merge = "mean"
    precision: Half = "auto"
    checks: int = 6
    patience: int = 3
    frugal: bool | None = None
    seed: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as JSON holds them."""
        return asdict(self)


@dataclass(frozen=True)
class FinePlan:
    """Everything a fine-tuning run is asked to do.

    start       folder of the encoder or checkpoint to start from
    attention   a registered mechanism in place of the checkpoint's own, with its parameters
    max_tokens  longest window; None: what the checkpoint's positions allow
    extension   how positions beyond the checkpoint's are made
    new_head    replace the labels that the checkpoint has
    """

    name: str
    task: str
    command: str
    output: Path
    cache: Path
    data: DataOptions
    start: Path
    attention: str | None
    attention_params: dict[str, Any]
    max_tokens: int | None
    extension: Extension
    new_head: bool
    recipe: Recipe
    threads: int
    resume: bool
