"""Lists the dialects besides chat completions, which need no translation."""

from __future__ import annotations

from collections.abc import Mapping

from .dialect import Dialect
from .messages import MESSAGES
from .responses import RESPONSES

DIALECTS: tuple[Dialect, ...] = (MESSAGES, RESPONSES)

BY_PATH = {path: dialect for dialect in DIALECTS for path in dialect.paths}
BY_COUNT_PATH = {path: dialect for dialect in DIALECTS for path in dialect.count_paths}


def spoken_by(headers: Mapping[str, str]) -> Dialect | None:
    """Return the dialect of a request to a path that all dialects share, such as the model list's.

    None: the headers name no dialect. ``headers``: with lower-case names.
    """
    versioned = (dialect for dialect in DIALECTS if dialect.version_header)
    return next((dialect for dialect in versioned if dialect.version_header in headers), None)
