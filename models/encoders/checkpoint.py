"""What `longdoc import` writes of an encoder without labels: training goes on from it.

encoder.json          what the network is and where it came from
weights.safetensors   its weights, in float32
tokenizer.json        its tokenizer, without built-in truncation and padding
card.md               the same for people to read
LICENSE, NOTICE       as they stood in the imported folder

An encoder whose head has labels is a checkpoint like any other, and is exported like one.
Free of torch.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import PlainSerializer, PlainValidator

from models.description import TOKENIZER, WEIGHTS, Document, JsonObject, MaxTokens, Name, parse
from models.encoders.config import EncoderConfig
from models.errors import BundleError
from models.files import inner_file

FORMAT: Final = 1
ENCODER = "encoder.json"
#: Files of a folder that go with whatever is made from it.
NOTICES = ("LICENSE", "LICENSE.txt", "LICENSE.md", "NOTICE", "NOTICE.txt")

Config = Annotated[
    EncoderConfig,
    PlainValidator(lambda v: v if isinstance(v, EncoderConfig) else EncoderConfig.from_dict(v)),
    PlainSerializer(EncoderConfig.to_dict),
]


class Encoder(Document):
    """An imported encoder. `source` says where it came from and what was found there."""

    format: Literal[1] = FORMAT
    name: Name
    config: Config
    max_tokens: MaxTokens
    source: JsonObject


def read_encoder(folder: Path) -> Encoder:
    """Read and check an encoder's description; all its files must be there."""
    if not (folder / ENCODER).is_file():
        raise BundleError(f"{folder} is not an imported encoder: it holds no {ENCODER}")
    for name in (WEIGHTS, TOKENIZER):
        inner_file(folder, name)
    return parse(Encoder, folder, ENCODER, FORMAT)
