"""The application factory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp

from service import docs_page, protocol_v2, routes, stream
from service.door import CLASSIFY_PATH
from service.middleware import Edge
from service.problems import install_handlers
from service.state import Service


def create_app(service: Service) -> ASGIApp:
    """The web application around a service; starting it starts the self-test, if nobody has."""

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        service.start()
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
