"""The dialects that are served, beside chat completions, which need no translation."""

from __future__ import annotations

from collections.abc import Mapping

from .dialect import Dialect
from .messages import MESSAGES
from .responses import RESPONSES

DIALECTS: tuple[Dialect, ...] = (MESSAGES, RESPONSES)

BY_PATH = {path: dialect for dialect in DIALECTS for path in dialect.paths}
BY_COUNT_PATH = {path: dialect for dialect in DIALECTS for path in dialect.count_paths}


def spoken_by(headers: Mapping[str, str]) -> Dialect | None:
    """The dialect that a request for all paths' things, such as the models, is made in.

    None: it doesn't say. ``headers``: names in lower case.
    """
    named = (d for d in DIALECTS if d.version_header)
    return next((d for d in named if d.version_header in headers), None)
