"""What a checkpoint and the bundle made from it both say of a network, and how that is read.

Free of torch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    ValidationError,
    model_validator,
)

from models.config import ModelConfig
from models.encoders.config import EncoderConfig, NetworkConfig
from models.errors import BundleError, bundle_errors
from models.files import read_text
from models.terminal import is_printable, printable
from models.windows import Merge

#: Files that a checkpoint and a bundle hold; a checkpoint's tables are with its weights.
WEIGHTS = "weights.safetensors"
TABLES = "tables.safetensors"
TOKENIZER = "tokenizer.json"
CARD = "card.md"

MAX_JSON_BYTES = 4 << 20

#: The most of each part of a network that is read from a file: more than any network that fits.
_MOST: Mapping[str, int] = MappingProxyType(
    {
        "vocab_size": 1 << 21,
        "num_labels": 10_000,
        "layers": 256,
        "width": 16_384,
        "hidden": 65_536,
        "heads": 256,
        "pairs": 1 << 22,
        "pair_width": 16_384,
        "opening": 1 << 20,
    }
)


def _plain_json(value: dict[str, Any]) -> dict[str, Any]:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, RecursionError) as error:
        raise ValueError(f"not plain JSON: {error}") from None
    return value


def _shown_as_it_is(text: str) -> str:
    if not is_printable(text):
        raise ValueError(f"{printable(text)!r} holds characters that a terminal would act on")
    return text


def read_config(plain: Any) -> NetworkConfig:
    """A configuration of either kind of network; only an encoder's names a family."""
    if isinstance(plain, ModelConfig | EncoderConfig):
        return plain
    encoder = isinstance(plain, Mapping) and "family" in plain
    try:
        config = EncoderConfig.from_dict(plain) if encoder else ModelConfig.from_dict(plain)
    except (TypeError, OverflowError, RecursionError) as error:
        raise ValueError(f"the configuration makes no sense: {error}") from None
    for name, most in _MOST.items():
        if getattr(config, name, 0) > most:
            raise ValueError(f"{name} is {getattr(config, name)}; at most {most} is allowed")
    for name, value in config.attention_params.items():
        if isinstance(value, tuple) and len(value) > config.layers:
            raise ValueError(f"{name} has {len(value)} values for {config.layers} layers")
    return config


Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")]
Line = Annotated[str, Field(max_length=2000), AfterValidator(_shown_as_it_is)]
Label = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_shown_as_it_is)]
Task = Annotated[str, Field(min_length=1, max_length=500), AfterValidator(_shown_as_it_is)]
Labels = Annotated[tuple[Label, ...], Field(min_length=1, max_length=10_000)]
MaxTokens = Annotated[int, Field(ge=1, le=1 << 20)]
JsonObject = Annotated[dict[str, Any], AfterValidator(_plain_json)]
TokenizerKind = Literal["bpe", "words", "custom"]
Config = Annotated[
    NetworkConfig,
    PlainValidator(read_config),
    PlainSerializer(lambda config: config.to_dict()),
]


class Document(BaseModel):
    """A frozen record that is stored as JSON; unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)


class WindowRecipe(Document):
    """How a document longer than `max_tokens` is read, in training as in service.

    overlap   tokens that neighbouring windows share
    merge     what stands for the document: the mean of its windows, or the surest one
    """

    overlap: Annotated[int, Field(ge=0, le=1 << 20)]
    merge: Merge = "mean"


class Description(Document):
    """What a checkpoint and the bundle made from it both say of a network.

    name         what it is called: small letters, digits, dots, dashes, underscores
    task         what it tells apart, in a line
    labels       the labels, in the order of the logits
    config       what the network is made of
    max_tokens   the longest document it reads in one piece
    tokenizer    the kind of tokenizer
    evaluation   how well it does on documents it was not trained on
    windows      how longer documents are read; None: as the service is set
    """

    name: Name
    task: Task
    labels: Labels
    config: Config
    max_tokens: MaxTokens
    tokenizer: TokenizerKind
    evaluation: JsonObject
    windows: WindowRecipe | None = None

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if len(self.labels) != self.config.num_labels:
            raise ValueError(
                f"{len(self.labels)} labels, but the head has {self.config.num_labels}"
            )
        if len(set(self.labels)) != len(self.labels):
            raise ValueError("a label is named twice")
        limit = self.config.max_length
        if limit is not None and self.max_tokens > limit:
            raise ValueError(f"max_tokens is {self.max_tokens}, but the attention takes {limit}")
        return self


D = TypeVar("D", bound=Document)


def parse(kind: type[D], folder: Path, name: str, expected: int) -> D:
    """A JSON file of a folder as a document; a wrong, older or newer one is a BundleError."""
    return parse_text(kind, read_text(folder, name, MAX_JSON_BYTES), folder / name, expected)


def parse_text(kind: type[D], text: str, path: Path, expected: int) -> D:
    """The text of a JSON file as a document; `path` is what a BundleError names."""
    try:
        with bundle_errors(f"{path} cannot be read", other_than=ValidationError):
            found = _Format.model_validate_json(text, strict=True).format
            _check_format(path, found, expected)
            return kind.model_validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "the file"
        raise BundleError(f"{path}: {place[:100]}: {first['msg'][:500]}") from None


def _check_format(path: Path, found: int, expected: int) -> None:
    if found > expected:
        raise BundleError(
            f"{path} has format {found}; this version reads format {expected}: "
            "install a newer longdoc"
        )
    if found < expected:
        raise BundleError(
            f"{path} has format {found}; this version reads format {expected}: "
            "export its checkpoint again"
        )


class _Format(BaseModel):
    format: int
