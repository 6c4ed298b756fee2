"""What an imported encoder is made of: everything needed to rebuild the network. Free of torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, Final, Literal, get_args

from models.config import ModelConfig
from models.errors import ConfigError
from models.mechanisms import ATTENTIONS

Activation = Literal["gelu", "gelu_tanh", "relu", "silu", "tanh"]
Pooling = Literal["first", "mean", "max"]
Blocks = Literal["post_norm", "pre_norm"]

#: Attentions of checkpoints that no registered mechanism computes, and how their cost grows.
OWN: Final[Mapping[str, Literal["n", "n²"]]] = MappingProxyType(
    {
        "longformer_projected": "n",  # global tokens have projections of their own
        "bigbird_blocks": "n",
        "nystromformer_shared_start": "n",
        "softmax_convolution": "n²",
        "softmax_relative": "n²",
        "softmax_alternating": "n²",  # a few layers see everything, the others a window
    }
)
_MOST_LAYERS, _MOST_WIDTH, _MOST_ENTRIES = 200, 1 << 15, 1 << 21
_COUNTS = {
    "vocab_size": _MOST_ENTRIES,
    "layers": _MOST_LAYERS,
    "width": _MOST_WIDTH,
    "hidden": 8 * _MOST_WIDTH,
    "heads": _MOST_WIDTH,
    "positions": _MOST_ENTRIES,
}


@dataclass(frozen=True)
class EncoderConfig:
    """What an encoder and its head are made of.

    family             model_type of the checkpoint it came from
    vocab_size         entries of the token embedding
    num_labels         labels of the head; 0: no head yet
    attention          a registered mechanism, or one of `OWN`
    attention_params   its parameters
    layers, width, hidden, heads
    positions          most tokens it reads at once, special tokens included
    rotary             (theta of layers that see everything, of the others); None: a table
    blocks             where a block normalises
    gated              whether half of the feed-forward layer is multiplied with the other half
    activation         of the feed-forward layer
    norm_eps           of every normalisation
    prefix, suffix     ids of the special tokens around every document or window
    pooling            what stands for the document: its first token, the mean, or the maximum
    head_activation    of the dense layer before the last one; None: there is none
    head_norm          whether that layer is normalised
    multi_label        whether a document may have several labels
    dropout            share of activations dropped while training
    """

    family: str
    vocab_size: int
    num_labels: int
    attention: str
    layers: int
    width: int
    hidden: int
    heads: int
    positions: int
    attention_params: Mapping[str, Any] = field(default_factory=dict)
    rotary: tuple[float, float] | None = None
    blocks: Blocks = "post_norm"
    gated: bool = False
    activation: Activation = "gelu"
    norm_eps: float = 1e-12
    prefix: tuple[int, ...] = ()
    suffix: tuple[int, ...] = ()
    pooling: Pooling = "mean"
    head_activation: Activation | None = None
    head_norm: bool = False
    multi_label: bool = False
    dropout: float = 0.1

    def __post_init__(self) -> None:
        for name, most in _COUNTS.items():
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
                raise ConfigError(f"{name} must be a whole number from 1 to {most}; got {value!r}")
        if not isinstance(self.num_labels, int) or not 0 <= self.num_labels <= 10_000:
            raise ConfigError(f"num_labels must be from 0 to 10000; got {self.num_labels!r}")
        if self.width % self.heads:
            raise ConfigError(
                f"heads must divide width; got {self.heads} heads and width {self.width}"
            )
        choices = {
            "blocks": get_args(Blocks),
            "activation": get_args(Activation),
            "pooling": get_args(Pooling),
            "head_activation": (None, *get_args(Activation)),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                known = ", ".join(str(one) for one in allowed)
                raise ConfigError(f"{name} must be one of {known}; got {getattr(self, name)!r}")
        self._check_tokens()
        params = dict(self.attention_params)
        if self.attention not in OWN:
            params = ATTENTIONS[self.attention].validate(params)
        object.__setattr__(self, "attention_params", MappingProxyType(params))
        if self.max_length < 1:
            raise ConfigError(
                f"{self.positions} positions, or the attention's limit, leave none beside the "
                f"{self.specials} special tokens"
            )
        if self.rotary is not None:
            object.__setattr__(self, "rotary", tuple(self.rotary))

    def _check_tokens(self) -> None:
        for name in ("prefix", "suffix"):
            ids = tuple(getattr(self, name))
            if len(ids) > 8 or any(not 0 <= one < self.vocab_size for one in ids):
                raise ConfigError(
                    f"{name} must be at most 8 ids below {self.vocab_size}; got {list(ids)}"
                )
            object.__setattr__(self, name, ids)

    @property
    def linear(self) -> bool:
        """Whether time and memory grow in proportion to the length."""
        own = OWN.get(self.attention)
        return own == "n" if own is not None else ATTENTIONS[self.attention].linear

    @property
    def head_dim(self) -> int:
        """Size of one head's vectors."""
        return self.width // self.heads

    @property
    def specials(self) -> int:
        """Special tokens that every document or window is given."""
        return len(self.prefix) + len(self.suffix)

    @property
    def max_length(self) -> int:
        """Most tokens of a document that it reads at once, without the special tokens."""
        most = self.positions
        if self.attention not in OWN:
            name = ATTENTIONS[self.attention].max_length
            most = most if name is None else min(most, int(self.attention_params[name]))
        return most - self.specials

    @property
    def additive(self) -> bool:
        """Whether a logit is a sum of one term per token, so that evidence is exact."""
        return self.pooling == "mean" and self.head_activation is None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as JSON holds them."""
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        plain["attention_params"] = _plain(dict(self.attention_params))
        return {name: _plain(value) for name, value in plain.items()}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> EncoderConfig:
        """The configuration that `to_dict` described."""
        known = {f.name for f in fields(cls)}
        unknown = sorted(set(plain) - known)
        if unknown:
            raise ConfigError(f"unknown configuration fields: {', '.join(unknown)}")
        try:
            return cls(**plain)
        except TypeError as error:
            raise ConfigError(f"the encoder's configuration is incomplete: {error}") from None


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    return list(value) if isinstance(value, tuple) else value


#: What a bundle or checkpoint may hold: our own network, or an imported encoder.
NetworkConfig = ModelConfig | EncoderConfig
