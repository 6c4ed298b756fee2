"""The classifier's configuration: everything needed to rebuild the network. Free of torch."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, Literal, get_args

from models.errors import ConfigError
from models.mechanisms import ATTENTIONS

#: Sizes by name. `lra` is the Long Range Arena model of the papers; `base` is what we ship.
PRESETS: Mapping[str, Mapping[str, int]] = MappingProxyType(
    {
        "lra": MappingProxyType({"layers": 2, "width": 64, "hidden": 128, "heads": 2}),
        "base": MappingProxyType({"layers": 2, "width": 128, "hidden": 256, "heads": 2}),
    }
)

Readout = Literal["mean", "first", "last"]
READOUTS = get_args(Readout)
LONGEST_CONVOLUTION = 64

#: Options that bundles of earlier versions do not have.
_LATER = ("convolution", "readout", "position_gain")
_POSITIVE = ("vocab_size", "num_labels", "layers", "width", "hidden", "heads")


@dataclass(frozen=True)
class ModelConfig:
    """What the classifier is made of.

    vocab_size         entries of the token embedding
    num_labels         labels of the head
    attention          name of a registered mechanism
    attention_params   its parameters; those left out take their defaults
    layers             transformer blocks
    width              size of a token's vector
    hidden             size of a block's feed-forward layer
    heads              attention heads; must divide width
    dropout            share of activations dropped while training
    damp_repeats       weigh a token that stands c times in a document by (1 + log c) / c
    pairs              rows of the table that pairs of neighbouring tokens are hashed into; 0: none
    pair_width         size of a pair's vector
    opening            tokens at a document's beginning that have a second vector each, of the same
                       size; 0: none
    convolution        tokens, up to and including its own, that a causal convolution mixes into
                       what queries, keys and values are made of; 0: none
    readout            what the head reads: the mean over the document, or its first or last token
    position_gain      what the learned gain of the positions starts at
    """

    vocab_size: int
    num_labels: int
    attention: str
    attention_params: Mapping[str, Any] = field(default_factory=dict)
    layers: int = 2
    width: int = 128
    hidden: int = 256
    heads: int = 2
    dropout: float = 0.1
    damp_repeats: bool = False
    pairs: int = 0
    pair_width: int = 0
    opening: int = 0
    convolution: int = 0
    readout: Readout = "mean"
    position_gain: float = 0.0

    def __post_init__(self) -> None:
        for name in _POSITIVE:
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ConfigError(f"{name} must be a whole number of at least 1; got {value!r}")
        if self.width % self.heads:
            raise ConfigError(
                f"heads must divide width; got {self.heads} heads and width {self.width}"
            )
        if self.width % 2:
            raise ConfigError(f"width must be even; got {self.width}")
        if not isinstance(self.dropout, int | float) or not 0 <= self.dropout < 1:
            raise ConfigError(f"dropout must be from 0 to below 1; got {self.dropout!r}")
        if not isinstance(self.damp_repeats, bool):
            raise ConfigError(f"damp_repeats must be true or false; got {self.damp_repeats!r}")
        for name in ("pairs", "pair_width", "opening", "convolution"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise ConfigError(f"{name} must be a whole number, 0 or more; got {value!r}")
        if bool(self.pairs) != bool(self.pair_width) or self.pair_width > self.width:
            raise ConfigError(
                "pairs need a pair_width from 1 to width, and no pairs a pair_width of 0; got "
                f"{self.pairs} pairs, pair_width {self.pair_width} and width {self.width}"
            )
        if self.opening and not self.pairs:
            raise ConfigError(f"an opening needs pairs; got {self.opening} tokens and no pairs")
        self._check_blank_start()
        if not isinstance(self.attention_params, Mapping):
            raise ConfigError(
                f"attention_params must be an object; got {type(self.attention_params).__name__}"
            )
        checked = ATTENTIONS[self.attention].validate(self.attention_params)
        object.__setattr__(self, "attention_params", MappingProxyType(checked))

    def _check_blank_start(self) -> None:
        if self.convolution > LONGEST_CONVOLUTION:
            raise ConfigError(
                f"convolution must be at most {LONGEST_CONVOLUTION}; got {self.convolution}"
            )
        if self.readout not in READOUTS:
            raise ConfigError(f"readout must be one of {READOUTS}; got {self.readout!r}")
        if self.readout != "mean" and (self.pairs or self.damp_repeats):
            raise ConfigError(
                "pairs and damp_repeats belong to a mean over the document; the readout is "
                f"{self.readout!r}"
            )
        gain = self.position_gain
        if not isinstance(gain, int | float) or isinstance(gain, bool) or not math.isfinite(gain):
            raise ConfigError(f"position_gain must be a number; got {gain!r}")

    @classmethod
    def from_preset(cls, preset: str, **values: Any) -> ModelConfig:
        """Build a configuration with a preset's sizes; given values win."""
        if preset not in PRESETS:
            raise ConfigError(f"unknown preset {preset!r}; known: {', '.join(PRESETS)}")
        return cls(**{**PRESETS[preset], **values})

    @property
    def head_dim(self) -> int:
        """Size of one head's vectors."""
        return self.width // self.heads

    @property
    def additive(self) -> bool:
        """Whether a logit is a sum of one term per token, so that evidence is exact."""
        return self.readout == "mean"

    @property
    def linear(self) -> bool:
        """Whether time and memory grow in proportion to the length."""
        return ATTENTIONS[self.attention].linear

    @property
    def max_length(self) -> int | None:
        """Longest document in tokens that the attention takes; None when there is no limit."""
        name = ATTENTIONS[self.attention].max_length
        return None if name is None else int(self.attention_params[name])

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as JSON holds them; later options only where they are used."""
        plain = {
            f.name: getattr(self, f.name)
            for f in fields(self)
            if f.name not in _LATER or getattr(self, f.name) != f.default
        }
        plain["attention_params"] = {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in self.attention_params.items()
        }
        return plain

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> ModelConfig:
        """The configuration that `to_dict` described."""
        if not isinstance(plain, Mapping):
            raise ConfigError(f"a configuration is an object; got {type(plain).__name__}")
        known = {f.name for f in fields(cls)}
        unknown = sorted(set(plain) - known)
        if unknown:
            raise ConfigError(
                f"unknown configuration fields: {', '.join(unknown)}; known: "
                + ", ".join(sorted(known))
            )
        missing = [n for n in ("vocab_size", "num_labels", "attention") if n not in plain]
        if missing:
            raise ConfigError(f"configuration lacks {', '.join(missing)}")
        return cls(**plain)

    def to_json(self) -> str:
        """The configuration as JSON text."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> ModelConfig:
        """The configuration that `to_json` wrote."""
        try:
            plain = json.loads(text)
        except json.JSONDecodeError as error:
            raise ConfigError(f"the configuration is not JSON: {error}") from None
        return cls.from_dict(plain)
