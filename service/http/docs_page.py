"""`GET /docs`: the routes with commands to paste, in one page that loads nothing from elsewhere."""

from __future__ import annotations

import html
import json
import shlex
from typing import Any

from fastapi import APIRouter
from starlette.responses import HTMLResponse, Response

from service.http.answers import json_answer
from service.http.request import RequestContext

router = APIRouter()

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 56rem; margin: 2rem auto; padding: 0 1rem;
       color: #1b1b1f; background: #fff; }
code, pre { font: 14px/1.4 ui-monospace, monospace; }
pre { background: #f2f3f5; padding: .8rem; overflow-x: auto; border-radius: .4rem; }
h2 { margin-top: 2.2rem; border-top: 1px solid #d8dade; padding-top: 1rem; }
.method { color: #0b6e4f; }
@media (prefers-color-scheme: dark) {
  body { color: #e6e6ea; background: #17181c; } pre { background: #24262c; }
  .method { color: #6fd3ae; } a { color: #8ab4ff; } h2 { border-color: #3a3d45; }
}
"""


@router.get("/docs", include_in_schema=False)
async def docs(request: RequestContext) -> Response:
    """A page that lists every route with its examples."""
    base = f"{request.url.scheme}://{request.url.netloc}"
    return HTMLResponse(render(request.app.openapi(), base))


@router.get("/openapi.json", include_in_schema=False)
async def openapi(request: RequestContext) -> Response:
    """The OpenAPI document."""
    return json_answer(request.app.openapi())


def render(document: dict[str, Any], base: str) -> str:
    """The page for an OpenAPI document, with commands for a service at `base`."""
    parts = [
        "<!doctype html><html lang='en'><meta charset='utf-8'>",
        "<meta name='viewport' content='width=device-width, initial-scale=1'>",
        f"<title>{_text(document['info']['title'])}</title><style>{_STYLE}</style>",
        f"<h1>{_text(document['info']['title'])}</h1>",
        f"<p>{_text(document['info']['description'])}</p>",
        "<p>For programs: <a href='openapi.json'>openapi.json</a></p>",
    ]
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            parts.append(f"<h2><span class='method'>{method.upper()}</span> {_text(path)}</h2>")
            parts.append(f"<p>{_text(operation.get('description', ''))}</p>")
            parts += [f"<pre>{_text(line)}</pre>" for line in commands(path, operation, base)]
    return "".join(parts) + "</html>"


def commands(path: str, operation: dict[str, Any], base: str) -> list[str]:
    """A curl command for each of the operation's examples."""
    if "{" in path:
        return []
    url = shlex.quote(base + path)
    found = []
    for media_type, content in operation.get("requestBody", {}).get("content", {}).items():
        examples = [e["value"] for e in content.get("examples", {}).values()]
        examples += [content["example"]] if "example" in content else []
        for example in examples:
            data = example if isinstance(example, str) else json.dumps(example)
            found.append(
                f"curl -s {url} -H {shlex.quote('Content-Type: ' + media_type)} "
                f"--data-binary {shlex.quote(data)}"
            )
    return found or [f"curl -s {url}"]


def _text(value: str) -> str:
    return html.escape(value)
