"""Log lines: plain text for people, JSON for collectors; never a caller's text."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any, TextIO

#: One line a request goes here.
requests = logging.getLogger("longdoc.request")
#: Everything else.
service = logging.getLogger("longdoc")


def configure(log_format: str, level: str) -> None:
    """Send this program's log lines to standard error in the form asked for."""
    handler = _Handler(sys.stderr)
    handler.setFormatter(_Json() if log_format == "json" else _Text())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    logging.getLogger("uvicorn").setLevel(logging.WARNING)


def request_line(**values: Any) -> None:
    """Write the line of one request."""
    requests.info("request", extra={"values": values})


class _Handler(logging.StreamHandler[TextIO]):
    """Hands lines over without waiting until they are written."""

    def flush(self) -> None:
        """Leave it to the stream."""


class _Json(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """The record's time, level, message and values."""
        line = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            **getattr(record, "values", {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class _Text(logging.Formatter):
    """The same for people."""

    def format(self, record: logging.LogRecord) -> str:
        """Time, level and message, with the values as name=value."""
        values = getattr(record, "values", {})
        words = [f"{name}={value}" for name, value in values.items() if value is not None]
        line = " ".join([_time(record), record.levelname.lower(), record.getMessage(), *words])
        rows = [line]
        if record.exc_info:
            # Indented, so that none of its lines can pass for one of the log's.
            rows += (f"  {row}" for row in self.formatException(record.exc_info).splitlines())
        return "\n".join(_printable(row) for row in rows)


def _printable(text: str) -> str:
    """The text as one line that does nothing to a terminal: a path of a caller may stand in it."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _time(record: logging.LogRecord) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{whole}.{int(record.msecs):03d}Z"
