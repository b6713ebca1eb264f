"""A reply's text, checked against its request's `response_format` and mended where that is sure.

By the same rules as a call in `check.py`; a pure function likewise, which never raises.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ..engine.verdicts import CallFailure
from ..wire.json_text import Unreadable, parse, write
from ..wire.thoughts import behind_thoughts
from . import explain
from .check import DEFAULT_OPTIONS, Checked, Options
from .repair.loss import keeps_everything
from .repair.shape import Mender
from .repair.text import read
from .schemas import CompiledSchema, reply_schema

FORMAT: Final = "response_format"  # what failures name as the tool


def check_response_format(
    text: str, response_format: Mapping[str, Any], options: Options = DEFAULT_OPTIONS
) -> Checked:
    """Check a reply's text against the request's `response_format`, and mend it likewise.

    `json_object` asks for any object, `json_schema` for what its schema says; anything else is not
    checked. The text stands in place of a call's arguments. Never raises.
    """
    wanted = response_format.get("type") if isinstance(response_format, Mapping) else None
    if wanted not in ("json_object", "json_schema") or not options.validate_json:
        return Checked(FORMAT, text)
    given = response_format.get("json_schema") if wanted == "json_schema" else None
    raw = given.get("schema") if isinstance(given, Mapping) else None
    schema = reply_schema({"type": "object"} if wanted == "json_object" else raw)
    try:
        value = parse(text, max_chars=options.max_chars, max_depth=options.max_depth)
        if options.validate_schema and not schema.is_checkable(value):
            return Checked(FORMAT, text, unchecked=True)
        if schema.accepts(value) or not options.validate_schema:
            return Checked(FORMAT, text)
    except Unreadable as error:
        answer = behind_thoughts(text) if options.repair else text
        if answer is not text:
            return _answer_alone(text, check_response_format(answer, response_format, options))
        beyond = error.kind in ("too_large", "too_deep") or len(text) > options.max_mended
        if beyond or not options.repair:
            return Checked(FORMAT, text, failures=(_format_failure(error),))
    return _mended_reply(text, schema, options)


def _answer_alone(text: str, answer: Checked) -> Checked:
    """What came of the answer in a text that begins with the model's reasoning."""
    if answer.failures:
        return Checked(FORMAT, text, failures=answer.failures)
    rules = tuple(dict.fromkeys(("leading_text", *answer.repairs)))
    return Checked(FORMAT, answer.arguments, rules, unchecked=answer.unchecked)


def _mended_reply(text: str, schema: CompiledSchema, options: Options) -> Checked:
    try:
        if options.repair and len(text) <= options.max_mended:
            reading = read(text, max_depth=options.max_depth, root="{[")
            value, rules = reading.value, reading.rules
            if schema.accepts(value):
                return Checked(FORMAT, reading.text or write(value), rules)
            mender = Mender(schema.definitions, options.max_depth)
            mended = mender.mend(value, schema.schema)
            if schema.accepts(mended) and keeps_everything(value, mended, mender.dropped):
                return Checked(FORMAT, write(mended), (*rules, *mender.rules))
        else:
            value = parse(text, max_chars=options.max_chars, max_depth=options.max_depth)
    except Unreadable as error:
        return Checked(FORMAT, text, failures=(_format_failure(error),))
    errors = schema.errors(value, options.most_errors(text))
    told = (CallFailure(FORMAT, *explain.schema_error(error, "")) for error in errors)
    return Checked(FORMAT, text, failures=tuple(told))


def _format_failure(error: Unreadable) -> CallFailure:
    return CallFailure(FORMAT, error.kind, f"the reply's contents {error.message}")
