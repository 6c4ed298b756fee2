"""What a checkpoint and the bundle made from it both say of a network, and how that is read.

Free of torch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
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
from models.errors import BundleError
from models.files import read_text
from models.windows import Merge

#: Files that a checkpoint and a bundle both hold.
WEIGHTS = "weights.safetensors"
TOKENIZER = "tokenizer.json"
CARD = "card.md"

_MAX_JSON_BYTES = 4 << 20


def _plain_json(value: dict[str, Any]) -> dict[str, Any]:
    try:
        json.dumps(value, allow_nan=False)
    except TypeError as error:
        raise ValueError(f"not plain JSON: {error}") from None
    return value


def read_config(plain: Any) -> NetworkConfig:
    """A configuration of either kind of network; only an encoder's names a family."""
    if isinstance(plain, ModelConfig | EncoderConfig):
        return plain
    if isinstance(plain, Mapping) and "family" in plain:
        return EncoderConfig.from_dict(plain)
    return ModelConfig.from_dict(plain)


Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")]
Label = Annotated[str, Field(min_length=1, max_length=200)]
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
    task: Annotated[str, Field(min_length=1, max_length=500)]
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


def parse(kind: type[D], folder: Path, name: str, newest: int) -> D:
    """A JSON file of a folder as a document; a wrong or newer one is a BundleError."""
    text = read_text(folder, name, _MAX_JSON_BYTES)
    try:
        found = _Format.model_validate_json(text, strict=True).format
        if found > newest:
            raise BundleError(
                f"{folder / name} has format {found}; this version reads up to {newest}: "
                "install a newer longdoc"
            )
        return kind.model_validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "the file"
        raise BundleError(f"{folder / name}: {place}: {first['msg']}") from None


class _Format(BaseModel):
    format: int
