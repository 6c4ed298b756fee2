"""The application: the routes around a service, and how FastAPI documents them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool

from service.http import docs_page, operation, protocol_v2, routes, stream
from service.http.routes import Application
from service.service import Service

_FIRST_ANSWERS = 0.1  # seconds
_ROUTERS = (routes.router, stream.router, operation.router, protocol_v2.router, docs_page.router)


def application(service: Service) -> Application:
    """The ASGI application around a service."""
    return Application(service, _declare(service), _ROUTERS)


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
