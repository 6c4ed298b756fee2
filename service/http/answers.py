"""Answers in JSON."""

from __future__ import annotations

import json
from typing import Any

from starlette.responses import Response


def json_answer(content: Any) -> Response:
    """An answer of any shape."""
    return Response(json.dumps(content).encode(), media_type="application/json")
