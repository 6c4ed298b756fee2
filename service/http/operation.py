"""The routes for whoever runs the service: health, readiness, metrics, what is served."""

from __future__ import annotations

import math
import platform
from importlib.metadata import version
from typing import Any

from fastapi import APIRouter
from starlette.responses import PlainTextResponse, Response

from service.http.answers import json_answer
from service.http.openapi import plain, responses
from service.http.request import RequestContext
from service.metrics import CONTENT_TYPE

router = APIRouter()

#: Looked up once: that opens files, of which a busy process may have no more left.
VERSIONS = {
    "longdoc": version("longdoc"),
    "python": platform.python_version(),
    **{name: version(name) for name in ("onnxruntime", "tiktoken", "tokenizers")},
}


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
