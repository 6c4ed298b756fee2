"""What a training run is asked to do."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training.data_options import DataOptions
from training.recipe import Recipe


@dataclass(frozen=True)
class Plan:
    """Everything a run is asked to do.

    name         what the classifier is called
    task         what it tells apart, in a line
    command      the command that reproduces it
    output       folder of the checkpoint
    cache        folder of what runs on the same data share
    tokenizer    the user's tokenizer.json; None learns one
    network      fields of the ModelConfig that do not depend on the data
    max_tokens   longest document read in one piece
    threads      of PyTorch; results depend on how many
    resume       go on with a run that was killed
    blank        start from PyTorch's initialisation, without a bag
    """

    name: str
    task: str
    command: str
    output: Path
    cache: Path
    data: DataOptions
    tokenizer: Path | None
    network: dict[str, Any]
    max_tokens: int
    recipe: Recipe
    device: str
    threads: int
    resume: bool
    blank: bool = False
