"""Logging: structlog to standard error, readable on a terminal, one JSON object a line otherwise.

No key, prompt or reply text goes into a log line: callers pass only names, numbers and hashes.
"""

from __future__ import annotations

import logging
import sys
import traceback
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TextIO

import orjson
import structlog

from .printable import printable
from .settings import ObservabilitySettings


class _CurrentStderr:
    """Writes to the current ``sys.stderr``, which a test or a host may have replaced.

    A failed write (the disk is full, or the reader has gone) breaks no exchange.
    """

    def write(self, text: str) -> int:
        try:
            return sys.stderr.write(text)
        except (OSError, ValueError):
            return 0

    def flush(self) -> None:
        try:
            sys.stderr.flush()
        except (OSError, ValueError):
            pass

    def isatty(self) -> bool:
        return sys.stderr.isatty()


Stream = TextIO | _CurrentStderr
# The id of the request for which lines are written now; the tasks that a request starts inherit it.
request_id: ContextVar[str] = ContextVar("request_id", default="")
_bound: Any = None  # the logger that `get` returns
_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


def configure(
    settings: ObservabilitySettings, stream: Stream | None = None, *, libraries: bool = True
) -> None:
    """Set up structlog; with ``libraries`` also format the standard library's loggers with it."""
    stream = stream or _CurrentStderr()
    console = settings.log_format == "console" or (
        settings.log_format == "auto" and stream.isatty()
    )
    shared: list[Any] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=not console),
        _add_request_id,
    ]
    plain: list[Any] = [_without_controls] if console else []  # JSON escapes control characters
    level = _LEVELS[settings.log_level]
    structlog.configure(
        processors=[*shared, *plain, _renderer(console, stream)],  # tracebacks: see `fault`
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(stream),  # type: ignore[arg-type]
        cache_logger_on_first_use=True,
    )
    global _bound  # noqa: PLW0603  # to find and bind a logger again costs as much as its line
    _bound = structlog.get_logger().bind()
    if libraries:
        _configure_libraries(console, stream, level, shared, plain)


def _configure_libraries(
    console: bool, stream: Stream, level: int, shared: list[Any], plain: list[Any]
) -> None:
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *plain,
                structlog.processors.format_exc_info,
                _renderer(console, stream),
            ],
            foreign_pre_chain=[structlog.stdlib.add_log_level, *shared[1:]],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    # Libraries log warnings and errors alone: other lines of theirs could quote a request.
    root.setLevel(max(level, logging.WARNING))


def _add_request_id(_: Any, __: str, event: Any) -> Any:
    if current_id := request_id.get():
        event.setdefault("request_id", current_id)
    return event


def _renderer(console: bool, stream: Stream) -> Any:
    if console:
        return structlog.dev.ConsoleRenderer(colors=stream.isatty())
    return _render_json


def _without_controls(_: Any, __: str, event: Any) -> Any:
    """Escape control characters: a client's text must not move the cursor or fake a log line."""
    for key, value in event.items():
        if isinstance(value, str):
            event[key] = printable(value)
    return event


def _render_json(_: Any, __: str, event: Any) -> str:
    line = orjson.dumps(event, default=str).decode()
    # orjson leaves characters that JSON allows but some terminals and line readers mishandle.
    return line if line.isascii() and "\x7f" not in line else printable(line)


def get() -> Any:
    """Return the project's logger."""
    return _bound or structlog.get_logger()


def fault(event: str, error: BaseException, **fields: Any) -> None:
    """Log an error of our own by type and place, because its message may quote a prompt."""
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    places = [f"{Path(f.filename).name}:{f.lineno} {f.name}" for f in frames]
    get().error(event, error=type(error).__name__, at=places, **fields)
