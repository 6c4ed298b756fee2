"""The network that fine-tuning starts from, and what of the checkpoint it keeps."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from models.checkpoint import CHECKPOINT, read_checkpoint
from models.description import TOKENIZER, WEIGHTS
from models.encoders.checkpoint import ENCODER, read_encoder
from models.encoders.config import EncoderConfig
from models.encoders.extend import extended_positions
from models.encoders.network import EncoderClassifier
from models.errors import ConfigError
from training.errors import CheckpointError
from training.finetuning.recipe import Extension, FinePlan
from training.tokenizing import Vocabulary, load_vocabulary

#: What another attention brings with it.
_NEW = re.compile(r"\.attend\.(attention|norm_attended)\.")


@dataclass(frozen=True)
class Start:
    """A folder that training may start from."""

    folder: Path
    name: str
    config: EncoderConfig
    labels: tuple[str, ...]
    source: dict[str, Any]

    def vocabulary(self) -> Vocabulary:
        """Its tokenizer."""
        return load_vocabulary(self.folder / TOKENIZER, "custom")


def read_start(folder: Path) -> Start:
    """An imported encoder, or an earlier checkpoint of one."""
    if (folder / ENCODER).is_file():
        encoder = read_encoder(folder)
        return Start(folder, encoder.name, encoder.config, (), encoder.source)
    if (folder / CHECKPOINT).is_file():
        checkpoint = read_checkpoint(folder)
        config = checkpoint.config
        if isinstance(config, EncoderConfig):
            training = checkpoint.training
            source = training.get("imported") or training.get("source") or {}
            return Start(folder, checkpoint.name, config, checkpoint.labels, source)
        raise CheckpointError(f"{folder} is no imported encoder; --from takes only those")
    raise CheckpointError(
        f"{folder} holds neither {ENCODER} nor {CHECKPOINT}; make it with "
        "`longdoc import FOLDER --out …`"
    )


def config_for(start: Start, plan: FinePlan, labels: tuple[str, ...]) -> EncoderConfig:
    """The network to train: the checkpoint's, with these labels and what the plan changes."""
    config = start.config
    if start.labels and start.labels != labels and not plan.new_head:
        raise CheckpointError(
            f"{start.folder} tells apart {', '.join(start.labels[:5])}; the data have "
            f"{', '.join(labels[:5])}. Train a new head with --new-head"
        )
    if not keeps_head(start, labels):
        config = replace(config, num_labels=len(labels), multi_label=False)
    return changed(config, plan.attention, plan.attention_params, plan.max_tokens)


def changed(
    config: EncoderConfig, attention: str | None, params: dict[str, Any], max_tokens: int | None
) -> EncoderConfig:
    """The network with another attention, and with more positions where they are asked for."""
    if attention is not None:
        if config.rotary is not None:
            raise ConfigError(
                f"--attention cannot replace that of {config.family}: its layers turn positions "
                "in two ways"
            )
        config = replace(config, attention=attention, attention_params=params)
    if max_tokens is not None and max_tokens > config.max_length:
        config = replace(config, positions=max_tokens + config.specials)
    return config


def keeps_head(start: Start, labels: tuple[str, ...]) -> bool:
    """Whether the checkpoint's head tells these labels apart."""
    return start.labels == labels


def make_network(
    start: Start, config: EncoderConfig, *, seed: int, extension: Extension, new_head: bool = False
) -> EncoderClassifier:
    """The checkpoint's weights where they fit; what is new is drawn from the seed."""
    torch.manual_seed(seed)
    model = EncoderClassifier(config)
    stored = _load(start.folder / WEIGHTS)
    wanted = model.state_dict()
    if "positions.weight" in stored and model.positions is not None:
        table = stored["positions.weight"].float()
        stored["positions.weight"] = extended_positions(
            table, config.positions, start.config.specials, extension
        )
    if config.num_labels != start.config.num_labels or new_head:
        stored = {name: tensor for name, tensor in stored.items() if name.split(".")[0] != "head"}
    with torch.no_grad():
        for name, tensor in wanted.items():
            old = stored.get(name, stored.get(name.replace(".qkv_global.", ".qkv.")))
            if old is not None and old.shape == tensor.shape:
                tensor.copy_(old)
            elif not name.startswith("head.") and not _NEW.search(name):
                raise CheckpointError(f"{start.folder / WEIGHTS} lacks {name} or has another shape")
        if config.num_labels and "head.weight" not in stored:
            torch.nn.init.normal_(model.head.get_parameter("weight"), std=0.02)
            torch.nn.init.zeros_(model.head.get_parameter("bias"))
    return model


def _load(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"cannot read {path}: {error}; import the folder again") from None
