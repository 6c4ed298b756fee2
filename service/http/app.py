"""The application: finds a request's route, has it answered, renders what was raised.

FastAPI declares the routes and documents them. Requests reach them by a table instead of through
the framework's layers, which take longer than all else that is done for a short document but
its run.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib.metadata import version

from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from service.errors import UnknownPath, WrongMethod
from service.http import docs_page, protocol_v2, routes, stream
from service.http.problems import error_response
from service.http.request import RequestContext
from service.service import Service

_FIRST_ANSWERS = 0.1  # seconds
_ROUTERS = (routes.router, stream.router, protocol_v2.router, docs_page.router)

Endpoint = Callable[..., Awaitable[Response]]
_Methods = dict[str, Endpoint]


class Application:
    """The ASGI application around a service."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.framework = _declare(service)
        self._by_path: dict[str, _Methods] = {}
        self._by_pattern: dict[re.Pattern[str], tuple[str, _Methods]] = {}
        for route in (route for router in _ROUTERS for route in router.routes):
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
                methods, values = self._match(request)
                request.admit()
                response = await _endpoint(methods, request)(request, **values)
            except Exception as error:  # whatever it was, the caller must know
                response = error_response(error, request.path)
            await request.respond(response)
        finally:
            request.end()

    def _match(self, request: RequestContext) -> tuple[_Methods, dict[str, str]]:
        """The endpoints at a request's path, by method, and the values in the path."""
        methods = self._by_path.get(request.path)
        if methods is not None:
            request.route = request.path
            return methods, {}
        for pattern, (route, methods) in self._by_pattern.items():
            if found := pattern.match(request.path):
                request.route = route
                return methods, found.groupdict()
        return {}, {}


def _endpoint(methods: _Methods, request: RequestContext) -> Endpoint:
    if not methods:
        raise UnknownPath("nothing is served at this path")
    method = request.scope["method"]
    if method not in methods:
        raise WrongMethod(method, ", ".join(sorted(methods)))
    return methods[method]


def _declare(service: Service) -> FastAPI:
    """The routes as FastAPI documents them; starting it starts the self-test, if nobody has."""

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[dict[str, Service]]:
        service.start()
        # The first requests come before what only makes later ones faster.
        asyncio.get_running_loop().call_later(_FIRST_ANSWERS, service.has_begun.set)
        yield {"service": service}
        await run_in_threadpool(service.close)

    app = FastAPI(
        title="Longdoc",
        summary="Classifies long documents.",
        description=service.deployment.model.task,
        version=version("longdoc"),
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        lifespan=lifespan,
    )
    for router in _ROUTERS:
        app.include_router(router)
    return app
