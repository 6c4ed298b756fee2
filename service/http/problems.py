"""From errors to responses: the one place where that happens."""

from __future__ import annotations

import json
from typing import cast

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from service.errors import InternalFault, ServiceError, UnknownPath, WrongMethod
from service.http.body import ClientLeft
from service.http.request import CLIENT_LEFT
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
    log.error("a fault while answering %s", path, exc_info=error)
    return problem_response(InternalFault(), path)


def install_handlers(app: FastAPI) -> None:
    """Have the framework's errors and ours answered in one form."""
    for kind in (ServiceError, ClientLeft, Exception):
        app.add_exception_handler(kind, _ours)
    app.add_exception_handler(HTTPException, _framework_error)


# Not plain functions: those would be sent to a thread, for each error anew.
async def _ours(request: Request, error: Exception) -> Response:
    return error_response(error, request.url.path)


async def _framework_error(request: Request, error: Exception) -> Response:
    known = cast("HTTPException", error)
    if known.status_code == 405:
        allowed = (known.headers or {}).get("Allow", "")
        return problem_response(WrongMethod(request.method, allowed), request.url.path)
    if known.status_code == 404:
        return problem_response(UnknownPath("nothing is served at this path"), request.url.path)
    raise error
