"""The routes: each reads its request, hands it to the pipeline and forms the response."""

from __future__ import annotations

import functools
import math
import platform
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from fastapi import APIRouter
from starlette.responses import PlainTextResponse, Response

from service.errors import InvalidRequest, UnsupportedMedia
from service.http.answers import check_count, choose_options, classify_answer, json_answer
from service.http.body import content_type, decode_json, decode_text, read_body
from service.http.openapi import CLASSIFY, ESTIMATE, plain, responses
from service.http.request import RequestContext
from service.http.schemas import (
    ClassifyRequest,
    ClassifyResponse,
    EstimateRequest,
    R,
    parse_request,
)
from service.metrics import CONTENT_TYPE
from service.pipeline import Forecast

router = APIRouter()

#: Looked up once: that opens files, of which a busy process may have no more left.
VERSIONS = {
    "longdoc": version("longdoc"),
    "python": platform.python_version(),
    **{name: version(name) for name in ("onnxruntime", "tiktoken", "tokenizers")},
}


@router.post(
    "/classify",
    response_model=ClassifyResponse,
    responses=responses(400, 401, 408, 413, 415, 422, 429, 503, 504),
    openapi_extra=CLASSIFY,
    tags=["classification"],
)
async def classify(request: RequestContext) -> Response:
    """Classify one text or several.

    Takes JSON or a plain text, gzipped or not; options may also stand in the query.
    """
    pipeline = request.service.running.pipeline
    wanted = await _read_request(request, ClassifyRequest)
    options = choose_options(wanted, request.service)
    answer = await request.unless_caller_leaves(pipeline.classify(wanted.texts, options))
    return classify_answer(request, answer)


@router.post(
    "/estimate",
    response_model=Forecast,
    responses=responses(400, 401, 408, 413, 415, 422, 503, 504),
    openapi_extra=ESTIMATE,
    tags=["classification"],
)
async def estimate(request: RequestContext) -> Response:
    """Predict what classifying the texts would take, without running them."""
    service = request.service
    wanted = await _read_request(request, EstimateRequest)
    check_count(len(wanted.texts), service)
    timeout = service.settings.timeout_ms / 1000
    work = service.running.pipeline.estimate(wanted.texts, timeout)
    return json_answer(asdict(await request.unless_caller_leaves(work)))


@router.get(
    "/healthz",
    response_class=PlainTextResponse,
    responses=plain("The process lives."),
    tags=["operation"],
)
async def healthz(_request: RequestContext) -> Response:
    """Whether the process lives."""
    return Response("ok\n", media_type="text/plain")


@router.get(
    "/readyz",
    response_class=PlainTextResponse,
    responses={**plain("The service takes work."), **responses(503)},
    tags=["operation"],
)
async def readyz(request: RequestContext) -> Response:
    """Whether a real inference has succeeded and every worker is alive."""
    request.service.check_ready()
    return Response("ready\n", media_type="text/plain")


@router.get(
    "/metrics",
    response_class=PlainTextResponse,
    responses=plain("Prometheus's text format."),
    tags=["operation"],
)
async def metrics(request: RequestContext) -> Response:
    """Figures for Prometheus."""
    service = request.service
    service.sample()
    return Response(service.metrics.text(), media_type=CONTENT_TYPE)


@router.get(
    "/info", response_model=dict[str, Any], responses=responses(401, 503), tags=["operation"]
)
async def info(request: RequestContext) -> Response:
    """What is served, by what, within which limits, and how well it was checked."""
    service = request.service
    running = service.running
    model, engine = service.deployment.model, service.deployment.engine.info
    settings, policy, test = service.settings, running.scheduler.policy, running.self_test
    a, b, c = running.scheduler.cost.coefficients
    about = {
        "model": model.name,
        "version": model.version,
        "task": model.task,
        "labels": list(model.labels),
        "attention": {"name": model.attention, "parameters": dict(model.attention_params)},
        "engine": {
            "name": engine.engine,
            "device": engine.device,
            "provider": engine.provider,
            "precision": engine.precision,
            "threads": engine.threads,
            "reason": engine.reason,
        },
        "workers": {
            "short": policy.workers,
            "long": policy.long_workers,
            "long_from_seconds": policy.long_work,
            "long_from_tokens": _whole(running.scheduler.admission.long_tokens),
            "long_niceness": policy.long_niceness,
            "all_cores_threads": running.scheduler.all_cores_threads,
            "batch_below_tokens": policy.batch_below,
        },
        "limits": {
            "max_tokens": model.max_tokens,
            "window_overlap": running.pipeline.reader.overlap,
            "body_bytes": settings.max_body_bytes,
            "texts": settings.max_texts,
            "timeout_ms": settings.timeout_ms,
            "max_timeout_ms": settings.max_timeout_ms,
            "queue_seconds": policy.queue_seconds,
            "running_tokens": policy.max_running_tokens,
        },
        "cost": {"seconds": {"constant": a, "per_token": b, "per_token_squared": c}},
        "versions": dict(VERSIONS),
        "bundle_digest": model.digest,
        "accuracy": dict(model.accuracy),
        "certificate": dict(model.certificate),
        "self_test": {
            "largest_difference": test.largest_difference,
            "batching": test.batching,
            "bytes_per_token": test.bytes_per_token,
            "seconds": test.seconds,
        },
    }
    return json_answer(about)


def _whole(tokens: float) -> int | None:
    """A length for JSON, which has nothing infinite."""
    return None if math.isinf(tokens) else math.ceil(tokens)


async def _read_request(request: RequestContext, kind: type[R]) -> R:
    media_type = content_type(request)
    if media_type not in ("application/json", "text/plain"):
        raise UnsupportedMedia(
            f"content type {media_type[:80]!r} is not served; send application/json or text/plain"
        )
    query = _query(request)
    body = await read_body(request, request.service)
    parse = functools.partial(_parse, kind, media_type, query, body)
    return await request.service.parsing.run(len(body), parse)


def _parse(kind: type[R], media_type: str, query: dict[str, str | int], body: bytes) -> R:
    if media_type == "text/plain":
        return parse_request(kind, {**query, "input": decode_text(body)})
    document = decode_json(body)
    if query and isinstance(document, dict):
        document = query | document
    return parse_request(kind, document)


def _query(request: RequestContext) -> dict[str, str | int]:
    """The options in the query, as JSON would have them."""
    options: dict[str, str | int] = {}
    if not request.scope["query_string"]:
        return options
    for name, value in request.query_params.multi_items():
        if name in options:
            raise InvalidRequest(f"option {name[:80]!r} is given twice in the query")
        whole = len(value) < 20 and value.isascii() and value.removeprefix("-").isdigit()
        options[name] = int(value) if whole else value
    return options
