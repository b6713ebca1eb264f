"""Say which tools of a recorded request have a schema that is no JSON Schema, and where.

The proxy checks what it can of such a schema and lets the rest be. ``jsonschema`` names the place:
unlike ``jsonschema-rs``, which serves requests, it picks the error that explains most. It is too
slow for requests, and a hostile schema could hold it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from ..printable import abridged
from ..tool_validation.tools import tool_set

MAX_MESSAGE: Final = 200  # characters
_META: Final = Draft202012Validator(Draft202012Validator.META_SCHEMA)


def faulty_schemas(tools: Any) -> Iterator[str]:
    """Yield a sentence for each tool whose schema is invalid; ``tools``: as a request has them."""
    offered = tool_set(tools)
    for name in offered.names:
        if fault := _fault_of(json.dumps(offered.compiled(name).raw)):
            yield f'the schema of "{name}" is no JSON Schema at {fault}'


@lru_cache(maxsize=1_024)
def _fault_of(text: str) -> str:
    """Return where and why the schema with this JSON text is invalid; "" if it is valid or null."""
    schema = json.loads(text)
    error = None if schema is None else best_match(_META.iter_errors(schema))
    return "" if error is None else f"{error.json_path}: {abridged(error.message, MAX_MESSAGE)}"
