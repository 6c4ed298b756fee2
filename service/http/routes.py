"""The routes: each reads its request, hands it to the pipeline, and forms the response."""

from __future__ import annotations

import functools
import math
import platform
from importlib.metadata import version
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from service.errors import InvalidRequest, UnsupportedMedia
from service.http.body import content_type, decode_json, decode_text, read_body
from service.http.openapi import CLASSIFY, ESTIMATE, plain, responses
from service.http.request import RequestRecord
from service.http.schemas import (
    ClassifyRequest,
    ClassifyResponse,
    EstimateRequest,
    EstimateResponse,
    R,
    parse_request,
)
from service.http.waiting import unless_client_leaves
from service.metrics import CONTENT_TYPE
from service.pipeline import Answer
from service.service import Service
from service.text.merge import Options

router = APIRouter()


@router.post(
    "/classify",
    response_model=ClassifyResponse,
    responses=responses(400, 401, 408, 413, 415, 422, 429, 503, 504),
    openapi_extra=CLASSIFY,
    tags=["classification"],
)
async def classify(request: Request) -> Response:
    """Classify one text or several.

    Takes JSON or a plain text, gzipped or not; options may also stand in the query.
    """
    service = service_of(request)
    pipeline = service.running.pipeline
    wanted = await _read_request(request, ClassifyRequest)
    options = choose_options(wanted, service)
    answer = await unless_client_leaves(request, pipeline.classify(wanted.texts, options))
    record: RequestRecord = request.state.record
    return Response(answer_json(service, record, answer), media_type="application/json")


@router.post(
    "/estimate",
    response_model=EstimateResponse,
    responses=responses(400, 401, 408, 413, 415, 422, 503, 504),
    openapi_extra=ESTIMATE,
    tags=["classification"],
)
async def estimate(request: Request) -> Response:
    """Tell what classifying the texts would take, without running them."""
    service = service_of(request)
    wanted = await _read_request(request, EstimateRequest)
    pipeline = service.running.pipeline
    timeout = service.settings.timeout_ms / 1000
    found = await unless_client_leaves(request, pipeline.estimate(wanted.texts, timeout))
    return Response(found.model_dump_json(), media_type="application/json")


@router.get(
    "/healthz",
    response_class=PlainTextResponse,
    responses=plain("The process lives."),
    tags=["operation"],
)
async def healthz() -> Response:
    """Whether the process lives."""
    return Response("ok\n", media_type="text/plain")


@router.get(
    "/readyz",
    response_class=PlainTextResponse,
    responses={**plain("The service takes work."), **responses(503)},
    tags=["operation"],
)
async def readyz(request: Request) -> Response:
    """Whether a real inference has succeeded and every lane is alive."""
    service_of(request).check_ready()
    return Response("ready\n", media_type="text/plain")


@router.get(
    "/metrics",
    response_class=PlainTextResponse,
    responses=plain("Prometheus's text format."),
    tags=["operation"],
)
async def metrics(request: Request) -> Response:
    """Figures for Prometheus."""
    service = service_of(request)
    service.sample()
    return Response(service.metrics.text(), media_type=CONTENT_TYPE)


@router.get("/info", responses=responses(401, 503), tags=["operation"])
async def info(request: Request) -> dict[str, Any]:
    """What is served, by what, within which limits, and how well it was checked."""
    service = service_of(request)
    running = service.running
    model, engine = service.deployment.model, service.deployment.engine.info
    settings, policy, test = service.settings, running.scheduler.policy, running.self_test
    a, b, c = running.scheduler.cost.coefficients
    return {
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
        "lanes": {
            "fast": policy.lanes,
            "long": policy.long_lanes,
            "long_from_seconds": policy.long_work,
            "long_from_tokens": _whole(running.scheduler.admission.long_tokens),
            "long_niceness": policy.long_nice,
            "lent_threads": running.scheduler.lent_threads,
            "group_below_tokens": policy.group_below,
        },
        "limits": {
            "max_tokens": model.max_tokens,
            "window_overlap": running.pipeline.reader.overlap,
            "body_bytes": settings.max_body_bytes,
            "texts": settings.max_texts,
            "timeout_ms": settings.timeout_ms,
            "max_timeout_ms": settings.max_timeout_ms,
            "queue_seconds": policy.queue_seconds,
            "tokens_in_flight": policy.tokens_running,
        },
        "cost": {"seconds": {"constant": a, "per_token": b, "per_token_squared": c}},
        "versions": {
            "longdoc": version("longdoc"),
            "python": platform.python_version(),
            "onnxruntime": version("onnxruntime"),
            "tiktoken": version("tiktoken"),
            "tokenizers": version("tokenizers"),
        },
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


def _whole(tokens: float) -> int | None:
    """A length for JSON, which has nothing infinite."""
    return None if math.isinf(tokens) else math.ceil(tokens)


def service_of(request: Request) -> Service:
    """The application's state."""
    service: Service = request.app.state.service
    return service


def choose_options(wanted: ClassifyRequest, service: Service) -> Options:
    """The request's options, within the service's limits."""
    settings = service.settings
    if len(wanted.texts) > settings.max_texts:
        raise InvalidRequest(
            f"{len(wanted.texts)} texts in one request; at most {settings.max_texts} are "
            "allowed: send more requests, or use /classify/stream"
        )
    timeout_ms = wanted.timeout_ms or settings.timeout_ms
    if timeout_ms > settings.max_timeout_ms:
        raise InvalidRequest(f"timeout_ms: at most {settings.max_timeout_ms} is allowed")
    return Options(wanted.top_k, wanted.on_overflow, wanted.evidence, timeout_ms / 1000)


def answer_json(service: Service, record: RequestRecord, answer: Answer) -> str:
    """An answer as JSON; it is counted."""
    note_answer(service, record, answer)
    model = service.deployment.model
    response = ClassifyResponse(
        id=record.id,
        model=model.name,
        attention=model.attention,
        engine=service.deployment.engine.info.label,
        results=answer.results,
        timings_ms=answer.timings_ms(),
    )
    return response.model_dump_json()


def note_answer(service: Service, record: RequestRecord, answer: Answer) -> None:
    """Count an answer for the metrics and the log."""
    metrics = service.metrics
    tokens = 0
    for result in answer.results:
        read = result.tokens
        tokens += read.used
        metrics.document_tokens.observe(read.total)
        if read.truncated:
            metrics.truncated.inc()
        if read.windows > 1:
            metrics.windowed.inc()
    metrics.documents.inc(len(answer.results))
    metrics.tokens.inc(tokens)
    metrics.tokenize_seconds.observe(answer.tokenize)
    record.texts = (record.texts or 0) + len(answer.results)
    record.tokens = (record.tokens or 0) + tokens
    record.took(tokenize=answer.tokenize, queue=answer.queue, infer=answer.infer)


async def _read_request(request: Request, kind: type[R]) -> R:
    media_type = content_type(request)
    if media_type not in ("application/json", "text/plain"):
        raise UnsupportedMedia(
            f"content type {media_type[:80]!r} is not served; send application/json or text/plain"
        )
    service, query = service_of(request), _query(request)
    body = await read_body(request, service)
    parse = functools.partial(_parse, kind, media_type, query, body)
    return await service.parsing.run(len(body), parse)


def _parse(kind: type[R], media_type: str, query: dict[str, str | int], body: bytes) -> R:
    if media_type == "text/plain":
        return parse_request(kind, {**query, "input": decode_text(body)})
    document = decode_json(body)
    if query and isinstance(document, dict):
        document = query | document
    return parse_request(kind, document)


def _query(request: Request) -> dict[str, str | int]:
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
