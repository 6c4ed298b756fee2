"""A request's JSON: what the standard leaves open is refused rather than guessed.

A caller chooses the body, so nothing here takes longer than in proportion to its size.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any

from pydantic import ValidationError

from service.errors import EmptyText, InvalidRequest, MalformedBody
from service.http.schemas import INPUT_NAMES, R

MOST_VALUES = 100_000  # in one JSON document: each takes a hundred times its size in memory

_DEEPEST = 100  # levels of lists and objects
_MOST_ERRORS = 20  # that an answer lists
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def decode_text(body: bytes) -> str:
    """The body as text."""
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise MalformedBody(f"the body is not UTF-8: byte {error.start} is wrong") from None


def decode_json(body: bytes) -> Any:
    """The body as JSON; what the standard leaves open is refused rather than guessed."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        text = decode_text(body)  # says where
    brackets = text.count("[") + text.count("{")
    try:
        if brackets + text.count(",") > MOST_VALUES:
            _count_values(text)
        document = _JSON.decode(text)
    except RecursionError:
        raise _too_deep() from None
    except json.JSONDecodeError as error:
        raise MalformedBody(f"the body is not JSON: {error}") from None
    except ValueError as error:  # a number of thousands of digits, NaN, Infinity
        raise MalformedBody(f"the body is not JSON that can be read: {error}") from None
    if brackets > _DEEPEST or ("\\u" in text and _SURROGATE.search(text)):
        _check_depth_and_characters(document)
    return document


def _count_values(text: str) -> None:
    """Refuse too many values before there is an object for each; commas in strings are none."""
    values = place = 0
    while True:
        quote = text.find('"', place)
        end = quote if quote >= 0 else len(text)
        values += 1 + sum(text.count(mark, place, end) for mark in ",[{")
        if values > MOST_VALUES:
            raise InvalidRequest(
                f"the JSON holds more than the {MOST_VALUES} values that are allowed"
            )
        if quote < 0:
            return
        _, place = scanstring(text, quote + 1)


def _check_depth_and_characters(document: Any) -> None:
    level = [document]
    for _ in range(_DEEPEST):
        below: list[Any] = []
        for value in level:
            if isinstance(value, str):
                _check_characters(value)
            elif isinstance(value, list):
                below += value
            elif isinstance(value, dict):
                below += value.keys()
                below += value.values()
        if not below:
            return
        level = below
    raise _too_deep()


def _check_characters(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidRequest(
            "a text has half of a surrogate pair, which is not a character"
        ) from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise InvalidRequest(f"field {name[:80]!r} is given twice")
            seen.add(name)
    return found


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON value")


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{digits[:20]} is too large a number")
    return number


_JSON = json.JSONDecoder(
    object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite
)


def _too_deep() -> MalformedBody:
    return MalformedBody("the JSON is nested too deeply")


def parse_request(kind: type[R], document: object) -> R:
    """A request from decoded JSON; whatever is wrong with it becomes an InvalidRequest."""
    if not isinstance(document, Mapping):
        raise InvalidRequest("the body must be a JSON object")
    name, values = "input", document
    if "input" not in document or not document.keys() <= kind.model_fields.keys():
        name, values = _known(kind, document)
    try:
        request = kind.model_validate(values)
    except ValidationError as error:
        raise _invalid(error, name, values) from None
    texts = [request.input] if isinstance(request.input, str) else request.input
    for index, text in enumerate(texts):
        if not text or text.isspace():
            where = name if isinstance(request.input, str) else f"{name}.{index}"
            message = "the text is empty or only white space"
            raise EmptyText(f"{where}: {message}", [{"field": where, "message": message}])
    return request


def _known(kind: type[R], document: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The name that the text has, and the fields by their own names."""
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
    return name, values


def _invalid(error: ValidationError, input_name: str, values: Mapping[str, Any]) -> InvalidRequest:
    fields = []
    wrong = _wrong_input(values["input"]) if "input" in values else None
    if wrong is not None:  # one plain message instead of one for each type that it is not
        fields.append({"field": input_name, "message": wrong})
    for problem in error.errors(include_url=False, include_context=False, include_input=False)[
        :_MOST_ERRORS
    ]:
        path = [str(part) for part in problem["loc"]]
        if path and path[0] == "input" and wrong is not None:
            continue
        if path and path[0] == "input":
            path = [input_name, *(part for part in path[1:] if part.isdigit())]
        message = problem["msg"].removeprefix("Value error, ")
        fields.append({"field": ".".join(path)[:200], "message": message})
    first = fields[0]
    return InvalidRequest(f"{first['field']}: {first['message']}", fields)


def _wrong_input(value: object) -> str | None:
    if not isinstance(value, str | list):
        return "must be a text or a list of texts"
    for index, text in enumerate(value if isinstance(value, list) else [value]):
        if not isinstance(text, str):
            return f"item {index} must be a text"
    return None
