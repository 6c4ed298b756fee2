"""What requests and responses look like. The OpenAPI document is made from these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
)

from models.windows import Overflow
from service.errors import EmptyText, InvalidRequest
from service.text.merge import Result

INPUT_NAMES = ("input", "inputs", "text")
MOST_PASSAGES = 100

_MOST_ERRORS = 20  # that an answer lists

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

    @property
    def texts(self) -> list[str]:
        """The texts as a list."""
        return [self.input] if isinstance(self.input, str) else self.input

    @field_validator("input", mode="before")
    @classmethod
    def _says_what_it_is(cls, value: object) -> object:
        """One plain message instead of one for each type that it is not."""
        if not isinstance(value, str | list):
            raise ValueError("must be a text or a list of texts")
        for index, text in enumerate(value if isinstance(value, list) else [value]):
            if not isinstance(text, str):
                raise ValueError(f"item {index} must be a text")
        return value


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


def parse_request(kind: type[R], document: object) -> R:
    """A request from decoded JSON; whatever is wrong with it becomes an InvalidRequest."""
    if not isinstance(document, Mapping):
        raise InvalidRequest("the body must be a JSON object")
    given = [name for name in INPUT_NAMES if name in document]
    if len(given) > 1:
        raise InvalidRequest(f"give the text once, not as {' and '.join(given)}")
    name = given[0] if given else "input"
    values = {key: document[key] for key in kind.model_fields if key in document}
    # A caller can send unknown fields by the thousand; some are enough to say what is wrong.
    unknown = [key for key in document if key not in values and key != name][:_MOST_ERRORS]
    values |= {key: document[key] for key in unknown}
    if given:
        values["input"] = document[name]
    try:
        request = kind.model_validate(values)
    except ValidationError as error:
        raise _invalid(error, name) from None
    for index, text in enumerate(request.texts):
        if not text or text.isspace():
            where = name if isinstance(request.input, str) else f"{name}.{index}"
            message = "the text is empty or only white space"
            raise EmptyText(f"{where}: {message}", [{"field": where, "message": message}])
    return request


def _invalid(error: ValidationError, input_name: str) -> InvalidRequest:
    fields = []
    for problem in error.errors(include_url=False, include_context=False, include_input=False)[
        :_MOST_ERRORS
    ]:
        path = [str(part) for part in problem["loc"]]
        if path and path[0] == "input":
            path = [input_name, *(part for part in path[1:] if part.isdigit())]
        message = problem["msg"].removeprefix("Value error, ")
        fields.append({"field": ".".join(path)[:200], "message": message})
    first = fields[0]
    return InvalidRequest(f"{first['field']}: {first['message']}", fields)
