"""Parses a pass-through body as LiteLLM does, and removes LiteLLM's control fields.

JSON with lone surrogates, which parsers read differently, is rewritten.
"""

from __future__ import annotations

from collections.abc import Mapping

import orjson
from msgspec import Struct

from ..errors import invalid
from ..wire import json_text
from ..wire.fields import check_depth
from ..wire.forms import BadForm, fields_of
from .litellm_controls import is_control, patience, without_controls

_FORM = "multipart/form-data"
# LiteLLM never parses these as JSON, whatever they contain.
_UNREAD = frozenset(
    {"application/x-www-form-urlencoded", "application/x-protobuf", "application/protobuf"}
)
_IN_FORMS = "metadata"  # a form field that contains JSON; no form of OpenAI's has it


class ReadBody(Struct, frozen=True):
    """What a body asks for."""

    content: bytes  # the body to send on
    model: str | None  # None: the body names none, or several
    patience: float | None  # the client's time limit for the request in seconds; None: no limit


def read(headers: Mapping[str, str], body: bytes) -> ReadBody:
    """Parse a whole body. ``headers``: names in lower case. Raises :class:`ProxyError`."""
    content_type = headers.get("content-type", "")
    kind = content_type.partition(";")[0].strip().lower()
    if not body:
        return ReadBody(body, None, patience({}, headers))
    if kind == _FORM:
        return _form(content_type, headers, body)
    if kind in _UNREAD:
        raise invalid(
            "send JSON, or a form of type multipart/form-data", "content-type", status=415
        )
    return _json(headers, body)


def _json(headers: Mapping[str, str], body: bytes) -> ReadBody:
    try:
        # `plain`: without lone surrogates, which parsers read differently.
        parsed, plain = json_text.decode(body, huge=True)
    except ValueError as error:
        raise invalid(f"the request body is not valid JSON: {error}") from None
    if not isinstance(parsed, dict):
        raise invalid("the request body must be a JSON object")
    check_depth(parsed, body)
    kept, model = without_controls(parsed), parsed.get("model")
    return ReadBody(
        body if plain and kept is parsed else orjson.dumps(kept),
        model if isinstance(model, str) else None,
        patience(parsed, headers),
    )


def _form(content_type: str, headers: Mapping[str, str], body: bytes) -> ReadBody:
    try:
        fields = fields_of(content_type, body)
    except BadForm as error:
        raise invalid(f"the form in the request body can't be read: {error}") from None
    kept, end = [], 0
    for field in fields:
        if is_control(field.name) or field.name == _IN_FORMS:
            kept.append(body[end : field.start])
            end = field.end
    values = {field.name: field.value for field in fields}
    models = [field.value for field in fields if field.name == "model"]
    content = b"".join([*kept, body[end:]]) if kept else body
    return ReadBody(content, models[0] if len(models) == 1 else None, patience(values, headers))
