"""What the OpenAPI document says beyond what the framework finds out by itself."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel

from service.errors import STATUSES
from service.http.schemas import ClassifyRequest, ErrorObject, EstimateRequest, Problem

_TEXT = "The larvae were fed on sugar and their neurons imaged under a two-photon microscope."


def responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Problem documents for these statuses."""
    return _errors(statuses, "application/problem+json", Problem)


def error_objects(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The Open Inference Protocol's error objects for these statuses."""
    return _errors(statuses, "application/json", ErrorObject)


def _errors(
    statuses: Iterable[int], media_type: str, model: type[BaseModel]
) -> dict[int | str, dict[str, Any]]:
    meanings: dict[int, list[str]] = {}
    for status, _, title in STATUSES.values():
        meanings.setdefault(status, []).append(title)
    content = {media_type: {"schema": schema_of(model)}}
    return {
        status: {"description": "; ".join(meanings[status]), "content": content}
        for status in statuses
    }


@functools.cache
def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """A model's JSON schema with every reference replaced by what it refers to."""
    schema = model.model_json_schema()
    definitions = schema.pop("$defs", {})

    def resolved(part: Any) -> Any:
        if isinstance(part, list):
            return [resolved(item) for item in part]
        if not isinstance(part, dict):
            return part
        if "$ref" in part:
            return resolved(definitions[part["$ref"].rsplit("/", 1)[1]])
        return {key: resolved(value) for key, value in part.items()}

    whole: dict[str, Any] = resolved(schema)
    return whole


def json_body(model: type[BaseModel], example: dict[str, Any]) -> dict[str, Any]:
    """A JSON body as a model has it, with an example."""
    content = {"schema": schema_of(model), "example": example}
    return {"requestBody": {"required": True, "content": {"application/json": content}}}


def plain(meaning: str) -> dict[int | str, dict[str, Any]]:
    """A 200 with plain text."""
    content = {"text/plain": {"schema": {"type": "string"}}}
    return {200: {"description": meaning, "content": content}}


def _body(model: type[EstimateRequest], examples: dict[str, Any]) -> dict[str, Any]:
    schema = schema_of(model)
    named = {name: {"value": value} for name, value in examples.items()}
    return {
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {"schema": schema, "examples": named},
                "text/plain": {"schema": {"type": "string", "minLength": 1}, "example": _TEXT},
            },
        },
    }


def _options() -> list[dict[str, Any]]:
    """The options as query parameters, for plain texts above all."""
    properties = copy.deepcopy(ClassifyRequest.model_json_schema()["properties"])
    return [
        {
            "name": name,
            "in": "query",
            "description": properties[name]["description"] + " The body's own value wins.",
            "schema": _without_null(properties[name]),
        }
        for name in ("top_k", "on_overflow", "evidence", "timeout_ms")
    ]


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    variants = [v for v in schema.get("anyOf", []) if v.get("type") != "null"]
    kept = variants[0] if variants else schema
    return {key: value for key, value in kept.items() if key not in ("title", "description")}


CLASSIFY = _body(
    ClassifyRequest,
    {
        "one text": {"input": _TEXT},
        "evidence": {"input": _TEXT, "top_k": 5, "evidence": 3},
        "several texts": {"input": [_TEXT, "Another text."], "top_k": 1},
    },
)
CLASSIFY["parameters"] = _options()

ESTIMATE = _body(EstimateRequest, {"one text": {"input": _TEXT}})

STREAM = {
    "requestBody": {
        "required": True,
        "content": {
            "application/x-ndjson": {
                "schema": {"type": "string"},
                "example": f'{{"id": 1, "input": "{_TEXT}"}}\n{{"id": 2, "input": "Another."}}\n',
            }
        },
    },
    "responses": {
        "200": {
            "description": "One result or one error a line, in the order of the lines.",
            "content": {"application/x-ndjson": {"schema": {"type": "string"}}},
        }
    },
}
