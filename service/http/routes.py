"""Routes: finds a request's, and answers those that classify and estimate.

FastAPI declares the routes and documents them (`app.py`). Requests reach them by a table instead of
through the framework's layers, which take longer than all else that is done for a short document
but its run.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import asdict

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from pydantic import TypeAdapter
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from service import estimate as estimates
from service.errors import InvalidRequest, UnknownPath, UnsupportedMedia, WrongMethod
from service.http.answers import json_answer
from service.http.body import content_type, read_body
from service.http.json_input import decode_json, decode_text, parse_request
from service.http.offload import SMALL
from service.http.openapi import CLASSIFY, ESTIMATE, responses
from service.http.problems import error_response
from service.http.request import RequestContext
from service.http.schemas import (
    ClassifyRequest,
    ClassifyResponse,
    EstimateRequest,
    R,
    Timings,
)
from service.pipeline import Answer, Options
from service.service import Service

Endpoint = Callable[..., Awaitable[Response]]

_CLASSIFY = TypeAdapter(ClassifyResponse)
_JSON = b"application/json"

router = APIRouter()


class Application:
    """The ASGI application: a service behind its routes."""

    def __init__(self, service: Service, framework: FastAPI, routers: Iterable[APIRouter]) -> None:
        self.service, self.framework = service, framework
        self._by_path: dict[str, dict[str, Endpoint]] = {}
        self._by_pattern: dict[re.Pattern[str], tuple[str, dict[str, Endpoint]]] = {}
        for route in (route for router in routers for route in router.routes):
            if not isinstance(route, APIRoute):
                raise TypeError(f"not a route of requests: {route}")
            endpoints = dict.fromkeys(route.methods or (), route.endpoint)
            if "GET" in endpoints:
                endpoints["HEAD"] = endpoints["GET"]  # the connection leaves the body out
            if route.param_convertors:
                self._by_pattern[route.path_regex] = (route.path, endpoints)
            else:
                self._by_path.setdefault(route.path, {}).update(endpoints)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.framework(scope, receive, send)
            return
        scope["app"] = self.framework
        request = RequestContext(scope, receive, send, self.service)
        try:
            try:
                values: dict[str, str] = {}
                methods = self._by_path.get(request.path)
                if methods is None:
                    methods, values = self._match(request)
                else:
                    request.route = request.path
                request.admit()
                endpoint = methods.get(scope["method"])
                if endpoint is None:
                    raise _no_endpoint(scope["method"], methods)
                response = await endpoint(request, **values)
            except Exception as error:  # whatever it was, the caller must know
                response = error_response(error, request.path)
            await request.respond(response)
        finally:
            request.end()

    def _match(self, request: RequestContext) -> tuple[dict[str, Endpoint], dict[str, str]]:
        """The endpoints at a path that holds values, by method, and the values."""
        for pattern, (route, methods) in self._by_pattern.items():
            if found := pattern.match(request.path):
                request.route = route
                return methods, found.groupdict()
        return {}, {}


def _no_endpoint(method: str, methods: dict[str, Endpoint]) -> Exception:
    if not methods:
        return UnknownPath("nothing is served at this path")
    return WrongMethod(method, ", ".join(sorted(methods)))


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
    pipeline = request.service.pipeline or request.service.running.pipeline
    wanted = await _read_request(request, ClassifyRequest)
    texts = [wanted.input] if isinstance(wanted.input, str) else wanted.input
    options = choose_options(wanted, len(texts), request.service)
    answer = await request.unless_caller_leaves(pipeline.classify(texts, options))
    response = _classify_response(request, answer)
    request.note(answer)
    return response


@router.post(
    "/estimate",
    response_model=estimates.Forecast,
    responses=responses(400, 401, 408, 413, 415, 422, 503, 504),
    openapi_extra=ESTIMATE,
    tags=["classification"],
)
async def estimate(request: RequestContext) -> Response:
    """Predict what classifying the texts would take, without running them."""
    service = request.service
    wanted = await _read_request(request, EstimateRequest)
    texts = [wanted.input] if isinstance(wanted.input, str) else wanted.input
    check_count(len(texts), service)
    timeout = service.settings.timeout_ms / 1000
    work = estimates.estimate(service.running.pipeline, texts, timeout)
    return json_answer(asdict(await request.unless_caller_leaves(work)))


def choose_options(wanted: ClassifyRequest, texts: int, service: Service) -> Options:
    """The request's options, within the service's limits."""
    settings = service.settings
    if texts > settings.max_texts:
        check_count(texts, service)
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


def _classify_response(request: RequestContext, answer: Answer) -> Response:
    model, engine = request.service.deployment.model, request.service.deployment.engine.info
    took = Timings(
        round(1000 * answer.tokenize, 3),
        round(1000 * answer.queue, 3),
        round(1000 * answer.infer, 3),
        round(1000 * answer.total, 3),
    )
    response = ClassifyResponse(
        request.id,
        model.name,
        model.version,
        model.digest,
        model.attention,
        engine.label,
        answer.results,
        took,
    )
    return Response(_CLASSIFY.dump_json(response), media_type="application/json")


async def _read_request(request: RequestContext, kind: type[R]) -> R:
    media_type, query = "application/json", {}
    if request.fields.get(b"content-type", _JSON) != _JSON:
        media_type = content_type(request)
        if media_type not in ("application/json", "text/plain"):
            raise UnsupportedMedia(
                f"content type {media_type[:80]!r} is not served; send application/json or "
                "text/plain"
            )
    if request.scope["query_string"]:
        query = _query(request)
    body = request.whole_body()
    if body is None:
        body = await read_body(request, request.service)
    if len(body) <= SMALL and media_type == "application/json" and not query:
        return parse_request(kind, decode_json(body))
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
    for name, value in request.query_params.multi_items():
        if name in options:
            raise InvalidRequest(f"option {name[:80]!r} is given twice in the query")
        whole = len(value) < 20 and value.isascii() and value.removeprefix("-").isdigit()
        options[name] = int(value) if whole else value
    return options
