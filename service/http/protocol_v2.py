"""The Open Inference Protocol, version 2, for clients of KServe, Triton and MLServer.

One input, `text` (BYTES, one or two dimensions), and two outputs: `label` (BYTES) and `scores`
(FP32, one row a text, in the order of the model's labels). Binary input tensors are read;
outputs are JSON.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.responses import PlainTextResponse, Response

from service.errors import (
    EmptyText,
    InvalidRequest,
    MalformedBody,
    UnknownPath,
    UnsupportedMedia,
)
from service.http.answers import json_answer
from service.http.body import content_type, read_body, whole_number
from service.http.json_input import decode_json, decode_text
from service.http.openapi import error_objects, json_body, plain
from service.http.operation import VERSIONS
from service.http.request import RequestContext
from service.pipeline import Options
from service.service import Service

_HEADER = "inference-header-content-length"

router = APIRouter(prefix="/v2", tags=["open inference protocol"])


class _Tolerant(BaseModel):
    """What the protocol may add later is let through."""

    model_config = ConfigDict(extra="ignore", strict=True, defer_build=True)


class InputTensor(_Tolerant):
    """A tensor of texts."""

    name: Literal["text"]
    shape: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1, max_length=2)]
    datatype: Literal["BYTES"]
    parameters: dict[str, Any] = {}
    data: list[Any] | None = None


class OutputName(_Tolerant):
    """An output that the caller wants."""

    name: Literal["label", "scores"]


class InferRequest(_Tolerant):
    """What a client sends."""

    id: str | None = None
    inputs: Annotated[list[InputTensor], Field(min_length=1, max_length=1)]
    outputs: Annotated[list[OutputName], Field(max_length=16, fail_fast=True)] | None = None


_EXAMPLE = {
    "inputs": [{"name": "text", "shape": [1], "datatype": "BYTES", "data": ["A text to classify."]}]
}


@router.get("", response_model=dict[str, Any], responses=error_objects(401, 503))
async def server(_request: RequestContext) -> Response:
    """What serves."""
    return json_answer({"name": "longdoc", "version": VERSIONS["longdoc"], "extensions": []})


@router.get("/health/live", response_class=PlainTextResponse, responses=plain("The process lives."))
async def live(_request: RequestContext) -> Response:
    """Whether the process lives."""
    return PlainTextResponse("live\n")


@router.get(
    "/health/ready",
    response_class=PlainTextResponse,
    responses={**plain("The service takes work."), **error_objects(503)},
)
async def ready(request: RequestContext) -> Response:
    """Whether the service takes work."""
    request.service.check_ready()
    return PlainTextResponse("ready\n")


@router.get("/models/{name}", response_model=dict[str, Any], responses=error_objects(401, 404, 503))
async def model(request: RequestContext, name: str) -> Response:
    """What the model takes and gives."""
    service = _service_with(request, name)
    labels = service.deployment.model.labels
    about = {
        "name": name,
        "versions": [service.deployment.model.version],
        "platform": service.deployment.engine.info.label,
        "inputs": [{"name": "text", "datatype": "BYTES", "shape": [-1]}],
        "outputs": [
            {"name": "label", "datatype": "BYTES", "shape": [-1]},
            {"name": "scores", "datatype": "FP32", "shape": [-1, len(labels)]},
        ],
    }
    return json_answer(about)


@router.get(
    "/models/{name}/ready",
    response_class=PlainTextResponse,
    responses={**plain("The model takes work."), **error_objects(401, 404, 503)},
)
async def model_ready(request: RequestContext, name: str) -> Response:
    """Whether the model takes work."""
    _service_with(request, name).check_ready()
    return PlainTextResponse("ready\n")


@router.post(
    "/models/{name}/infer",
    openapi_extra=json_body(InferRequest, _EXAMPLE),
    responses=error_objects(400, 401, 404, 408, 413, 415, 422, 429, 503, 504),
    response_model=dict[str, Any],
)
async def infer(request: RequestContext, name: str) -> Response:
    """Classify the texts of a BYTES tensor."""
    service = _service_with(request, name)
    pipeline, settings = service.running.pipeline, service.settings
    binary = _HEADER.encode() in request.fields
    if not binary and content_type(request) != "application/json":
        raise UnsupportedMedia("send application/json")
    body = await read_body(request, service)
    json_length = request.field(_HEADER.encode()) if binary else None
    parse = functools.partial(_parse, body, json_length, settings.max_texts)
    wanted, texts = await service.parsing.run(len(body), parse)
    options = Options(timeout=settings.timeout_ms / 1000)
    answer = await request.unless_caller_leaves(pipeline.classify(texts, options))
    request.note(answer)
    labels = service.deployment.model.labels
    position = {label: index for index, label in enumerate(labels)}
    rows = []
    for result in answer.results:
        row = [0.0] * len(labels)
        for score in result.scores:
            row[position[score.label]] = score.score
        rows.append(row)
    outputs = [
        {
            "name": "label",
            "datatype": "BYTES",
            "shape": [len(rows)],
            "data": [result.label for result in answer.results],
        },
        {
            "name": "scores",
            "datatype": "FP32",
            "shape": [len(rows), len(labels)],
            "data": [value for row in rows for value in row],
        },
    ]
    names = {output.name for output in wanted.outputs or []} or {"label", "scores"}
    content = {
        "model_name": name,
        "model_version": service.deployment.model.version,
        "id": wanted.id if wanted.id is not None else request.id,
        "parameters": {"bundle_digest": service.deployment.model.digest},
        "outputs": [output for output in outputs if output["name"] in names],
    }
    return json_answer(content)


def _service_with(request: RequestContext, name: str) -> Service:
    service = request.service
    if name != service.deployment.model.name:
        raise UnknownPath(f"the model served here is {service.deployment.model.name}")
    return service


def _parse(body: bytes, json_length: str | None, most: int) -> tuple[InferRequest, list[str]]:
    """The request and its texts, from JSON alone or from JSON followed by binary tensors."""
    header = body
    if json_length is not None:
        length = whole_number(json_length)
        if length is None or length > len(body):
            raise MalformedBody(f"{_HEADER} must be the length of the body's JSON part")
        header = body[:length]
    try:
        wanted = InferRequest.model_validate(decode_json(header))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "the body"
        raise InvalidRequest(f"{place}: {first['msg']}") from None
    tensor = wanted.inputs[0]
    if tensor.data is not None:
        texts = [_text(item) for item in _flat(tensor.data)]
    else:
        texts = list(islice(_binary_texts(body[len(header) :]), most + 1))
    if len(texts) > most:
        raise InvalidRequest(f"more than the {most} texts that are allowed")
    size = tensor.shape[0] * (tensor.shape[1] if len(tensor.shape) == 2 else 1)
    if size != len(texts) or not texts:
        raise InvalidRequest(f"shape {tensor.shape} does not fit {len(texts)} texts")
    return wanted, texts


def _flat(data: list[Any]) -> list[Any]:
    return [item for part in data for item in (part if isinstance(part, list) else [part])]


def _text(item: Any) -> str:
    if not isinstance(item, str):
        raise InvalidRequest("data must hold texts")
    if not item or item.isspace():
        raise EmptyText("a text is empty or only white space")
    return item


def _binary_texts(data: bytes) -> Iterator[str]:
    """Texts that each follow their length, four bytes with the lowest first."""
    place = 0
    while place < len(data):
        if place + 4 > len(data):
            raise MalformedBody("the binary tensor ends within a length")
        (size,) = struct.unpack_from("<I", data, place)
        place += 4
        if place + size > len(data):
            raise MalformedBody("the binary tensor ends within a text")
        yield _text(decode_text(data[place : place + size]))
        place += size
