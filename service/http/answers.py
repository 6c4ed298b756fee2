"""From a request's fields to the pipeline's options, and from its answer to the response."""

from __future__ import annotations

import json
from typing import Any

from pydantic import TypeAdapter
from starlette.responses import Response

from service.errors import InvalidRequest
from service.http.request import RequestContext
from service.http.schemas import ClassifyRequest, ClassifyResponse, Timings
from service.pipeline import Answer, Options
from service.service import Service

_CLASSIFY = TypeAdapter(ClassifyResponse)


def choose_options(wanted: ClassifyRequest, service: Service) -> Options:
    """The request's options, within the service's limits."""
    settings = service.settings
    check_count(len(wanted.texts), service)
    timeout_ms = wanted.timeout_ms or settings.timeout_ms
    if timeout_ms > settings.max_timeout_ms:
        raise InvalidRequest(f"timeout_ms: at most {settings.max_timeout_ms} is allowed")
    return Options(wanted.top_k, wanted.on_overflow, wanted.evidence, timeout_ms / 1000)


def check_count(texts: int, service: Service) -> None:
    """Refuse more texts than one request may have."""
    most = service.settings.max_texts
    if texts > most:
        raise InvalidRequest(
            f"{texts} texts in one request; at most {most} are allowed: send more requests, "
            "or use /classify/stream"
        )


def classify_answer(request: RequestContext, answer: Answer) -> Response:
    """The answer to `POST /classify`; it is counted."""
    note_answer(request, answer)
    model, engine = request.service.deployment.model, request.service.deployment.engine
    took = Timings(
        *(round(1000 * s, 3) for s in (answer.tokenize, answer.queue, answer.infer, answer.total))
    )
    response = ClassifyResponse(
        request.id,
        model.name,
        model.version,
        model.digest,
        model.attention,
        engine.info.label,
        answer.results,
        took,
    )
    return Response(_CLASSIFY.dump_json(response), media_type="application/json")


def json_answer(content: Any) -> Response:
    """Any other JSON answer."""
    return Response(json.dumps(content).encode(), media_type="application/json")


def note_answer(request: RequestContext, answer: Answer) -> None:
    """Count an answer for the metrics and the request's log line."""
    tokens = request.service.metrics.count_answer(answer)
    request.note(answer, tokens)
