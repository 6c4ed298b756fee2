"""What requests and responses look like. The OpenAPI document is made from these."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
)

from models.windows import Overflow
from service.text.merge import Result

INPUT_NAMES = ("input", "inputs", "text")
MOST_PASSAGES = 100

_EXAMPLE = "The larvae were fed on sugar and their neurons imaged under a two-photon microscope."
# That a text holds something is checked by `parse_request`, which has an error of its own for it.
_Text = Annotated[str, Field(json_schema_extra={"minLength": 1, "pattern": r"\S"})]


def _whole(value: object) -> object:
    """JSON has no whole numbers of their own: 3.0 is 3."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


_Positive = Annotated[int, Field(ge=1), BeforeValidator(_whole)]


class Message(BaseModel):
    """Base of all: no field is guessed, none is ignored."""

    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)


def _one_of_the_input_names(schema: dict[str, Any]) -> None:
    properties = schema["properties"]
    for name in INPUT_NAMES[1:]:
        properties[name] = {**properties["input"], "description": "Another name for `input`."}
    schema["required"] = [name for name in schema.get("required", []) if name != "input"]
    if not schema["required"]:
        del schema["required"]
    schema["oneOf"] = [{"required": [name]} for name in INPUT_NAMES]


class EstimateRequest(Message):
    """Texts to estimate."""

    model_config = ConfigDict(
        json_schema_extra=_one_of_the_input_names, json_schema_mode_override="validation"
    )

    input: Annotated[
        _Text | Annotated[list[_Text], Field(min_length=1)],
        Field(description="A text, or a list of texts.", examples=[_EXAMPLE]),
    ]


class ClassifyRequest(EstimateRequest):
    """Texts to classify, and how."""

    top_k: Annotated[
        _Positive | None,
        Field(description="How many labels to score; all when null.", examples=[3]),
    ] = 3
    on_overflow: Annotated[
        Overflow,
        Field(
            description="What to do with a text that is longer than the model reads in one "
            "piece: read it in overlapping windows, read its beginning, read its beginning and "
            "end joined, or refuse it."
        ),
    ] = "window"
    evidence: Annotated[
        int,
        Field(ge=0, le=MOST_PASSAGES, description="How many passages to return at most."),
        BeforeValidator(_whole),
    ] = 0
    timeout_ms: Annotated[
        _Positive | None,
        Field(description="Time for an answer; the service's own when null."),
    ] = None


@dataclass(slots=True)
class Timings:
    """Milliseconds of wall-clock time; the first three add up to the last."""

    tokenize: Annotated[float, Field(description="Tokenizing, while no window was running.")]
    queue: Annotated[float, Field(description="Waiting for workers.")]
    infer: Annotated[float, Field(description="While at least one window was running.")]
    total: float


@dataclass(slots=True)
class ClassifyResponse:
    """The answers, in the order of the texts."""

    id: str
    model: str
    model_version: str
    bundle_digest: Annotated[str, Field(description="SHA-256 of what was served.")]
    attention: str
    engine: str
    results: list[Result]
    timings_ms: Timings


class Problem(BaseModel):
    """A problem document (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[dict[str, str]] | None = None


class ErrorObject(BaseModel):
    """An error in the Open Inference Protocol."""

    error: str


class StreamLine(ClassifyRequest):
    """One line of a stream: a text with the caller's own id."""

    id: Any = None


R = TypeVar("R", bound=EstimateRequest)
