"""The application factory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp

from service.http import docs_page, protocol_v2, routes, stream
from service.http.door import CLASSIFY_PATH
from service.http.middleware import Edge
from service.http.problems import install_handlers
from service.service import Service

_FIRST_ANSWERS = 0.1  # seconds


def create_app(service: Service) -> ASGIApp:
    """The web application around a service; starting it starts the self-test, if nobody has."""

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        service.start()
        # The first requests come before what only makes later ones faster.
        asyncio.get_running_loop().call_later(_FIRST_ANSWERS, service.has_begun.set)
        yield
        await run_in_threadpool(service.close)

    app = FastAPI(
        title="Longdoc",
        summary="Classifies long documents.",
        description=service.deployment.model.task,
        version=version("longdoc"),
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
    )
    app.state.service = service
    app.include_router(routes.router)
    app.include_router(stream.router)
    app.include_router(protocol_v2.router)
    app.include_router(docs_page.router)
    install_handlers(app)
    return Edge(app, service, {CLASSIFY_PATH: routes.classify})
