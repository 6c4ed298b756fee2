"""docs/reference.md: every route, metric and error of the service, from the code.

python -m scripts.reference
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import sys
from pathlib import Path

from fastapi.routing import APIRoute
from prometheus_client import Metric

from service import http
from service.errors import STATUSES
from service.metrics import Metrics

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference.md"
_INTRODUCTION = """\
# Reference

Every route, metric and error of the service; settings have [a page of their own](configuration.md).
Written by `python -m scripts.reference`.
"""


def page() -> str:
    """The whole page."""
    return "\n".join([_INTRODUCTION, *_routes(), "", *_errors(), "", *_metrics(), ""])


def _routes() -> list[str]:
    rows = ["## Routes", "", "| route | what it does |", "|---|---|"]
    for route in sorted(_all_routes(), key=lambda route: route.path):
        methods = sorted((route.methods or set()) - {"HEAD", "OPTIONS"})
        said = (inspect.getdoc(route.endpoint) or "").splitlines()
        about = said[0] if said else ""
        rows += [f"| `{method} {route.path}` | {about} |" for method in methods]
    return rows


def _all_routes() -> list[APIRoute]:
    """The routes of every router in service/http."""
    modules = [
        importlib.import_module(f"{http.__name__}.{each.name}")
        for each in pkgutil.iter_modules(http.__path__)
    ]
    routers = [module.router for module in modules if hasattr(module, "router")]
    return [route for router in routers for route in router.routes if isinstance(route, APIRoute)]


def _errors() -> list[str]:
    rows = [
        "## Errors",
        "",
        "Errors are problems of RFC 9457; their `type` ends with the name here.",
        "",
        "| status | type | title | when |",
        "|---|---|---|---|",
    ]
    for error, (status, slug, title) in STATUSES.items():
        said = (inspect.getdoc(error) or "").splitlines()[0]
        rows.append(f"| {status} | `{slug}` | {title} | {said} |")
    return rows


def _metrics() -> list[str]:
    rows = [
        "## Metrics",
        "",
        "`GET /metrics`, in Prometheus's text format; `process_` and `python_` metrics come with "
        "Prometheus's client.",
        "",
        "| metric | kind | labels | what it counts |",
        "|---|---|---|---|",
    ]
    metrics = Metrics()
    found: dict[str, Metric] = {each.name: each for each in metrics.registry.collect()}
    labels = _labels(inspect.getsource(sys.modules[Metrics.__module__]))
    for name in sorted(found):
        if not name.startswith(("process_", "python_")):
            metric = found[name]
            shown = f"{name}_total" if metric.type == "counter" else name
            own = ", ".join(f"`{label}`" for label in labels.get(name, ()))
            rows.append(f"| `{shown}` | {metric.type} | {own} | {metric.documentation} |")
    return rows


def _labels(source: str) -> dict[str, list[str]]:
    """Labels by metric, as the source declares them: a metric without samples tells none."""
    found = {}
    for name, rest in re.findall(r'"(longdoc_\w+)",(.*?)\n        \)', source, re.DOTALL):
        listed = re.search(r"\[([^\]]*)\]", rest) or re.search(r'label=("\w+")', rest)
        if listed:
            found[name] = re.findall(r'"(\w+)"', listed[1])
    return found


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
