"""From errors to responses: the one place where that happens."""

from __future__ import annotations

import json

from starlette.responses import Response

from service.errors import InternalFault, OutOfMemory, ServiceError
from service.http.request import CLIENT_LEFT, ClientLeft
from service.logs import service as log


def problem_response(error: ServiceError, path: str) -> Response:
    """A problem document; under /v2 the error object of the Open Inference Protocol."""
    problem = error.problem()
    if path == "/v2" or path.startswith("/v2/"):
        body, media_type = {"error": problem["detail"]}, "application/json"
    else:
        body, media_type = problem, "application/problem+json"
    return Response(
        json.dumps(body, ensure_ascii=False).encode("utf-8", "replace"),
        status_code=problem["status"],
        media_type=media_type,
        headers=error.response_headers(),
    )


def error_response(error: Exception, path: str) -> Response:
    """The answer to whatever was raised while a request was handled."""
    if isinstance(error, ServiceError):
        return problem_response(error, path)
    if isinstance(error, ClientLeft):
        return Response(status_code=CLIENT_LEFT)
    if isinstance(error, MemoryError):
        return problem_response(OutOfMemory(), path)
    log.error("a fault while answering %s", path, exc_info=error)
    return problem_response(InternalFault(), path)
