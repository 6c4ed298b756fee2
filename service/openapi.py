"""What the OpenAPI document says beyond what the framework finds out by itself."""

from __future__ import annotations

import copy
from typing import Any

from service.errors import STATUSES
from service.schemas import ClassifyRequest, EstimateRequest, Problem

_TEXT = "The larvae were fed on sugar and their neurons imaged under a two-photon microscope."

_GZIP = {
    "name": "Content-Encoding",
    "in": "header",
    "description": "How the body is packed.",
    "schema": {"type": "string", "enum": ["identity", "gzip"]},
}


def responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Problem documents for these statuses."""
    meanings: dict[int, list[str]] = {}
    for status, _, title in STATUSES.values():
        meanings.setdefault(status, []).append(title)
    return {
        status: {
            "description": "; ".join(meanings[status]),
            "model": Problem,
            "content": {
                "application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}
            },
        }
        for status in statuses
    }


def plain(meaning: str) -> dict[int | str, dict[str, Any]]:
    """A 200 with plain text."""
    content = {"text/plain": {"schema": {"type": "string"}}}
    return {200: {"description": meaning, "content": content}}


def _body(model: type[EstimateRequest], examples: dict[str, Any]) -> dict[str, Any]:
    schema = model.model_json_schema()
    named = {name: {"value": value} for name, value in examples.items()}
    return {
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {"schema": schema, "examples": named},
                "text/plain": {"schema": {"type": "string", "minLength": 1}, "example": _TEXT},
            },
        },
        "parameters": [_GZIP],
    }


def _options() -> list[dict[str, Any]]:
    """The options of a plain text, which stand in the query."""
    properties = copy.deepcopy(ClassifyRequest.model_json_schema()["properties"])
    return [
        {
            "name": name,
            "in": "query",
            "description": properties[name]["description"] + " For text/plain bodies only.",
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
CLASSIFY["parameters"] += _options()

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
    "parameters": [_GZIP],
    "responses": {
        "200": {
            "description": "One result or one error a line, in the order of the lines.",
            "content": {"application/x-ndjson": {"schema": {"type": "string"}}},
        }
    },
}

INFER: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {"type": "object"},
                "example": {
                    "inputs": [{"name": "text", "shape": [1], "datatype": "BYTES", "data": [_TEXT]}]
                },
            }
        },
    },
    "parameters": [_GZIP],
}
