"""Compiles the schemas of arguments and replies, and validates values.

``clean_schema`` reduces a client's schema to the checkable part, which ``jsonschema-rs`` validates.
Schemas are compiled once for each content, in a cache bounded by the bytes it holds. No schema can
hang the process: the regex engine runs in linear time (``clean_schema`` drops patterns that it does
not support, with look-around or back-references, and those beyond a schema's budget), a large
schema is not compiled, a large value is not checked against a large schema, and nothing is fetched.
``format`` is not asserted. Compiling may take 50 ms, so a caller on the event loop asks
:func:`is_quick` first. All functions are thread-safe.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from itertools import islice
from typing import Any, Final

import jsonschema_rs
import orjson

from ..kept import kept
from ..recent import RecentByBytes
from ..wire import fields, json_text
from .clean_schema import PATTERN_BYTES, Patterns, clean, regex
from .explain import UNEXPLAINED

CACHE_BYTES: Final = 32 * 1024 * 1024
MAX_SCHEMA: Final = 500_000  # bytes of JSON: a larger schema is not checked
MAX_CHECKABLE: Final = 128_000  # characters of JSON: a larger checkable part is not compiled
SMALL: Final = 16_000  # characters of JSON: a checkable part up to this size validates any value
_QUICK: Final = 4_000  # bytes of JSON: a schema of this size is compiled in a few milliseconds
# unless it has references or patterns.
_SLOW_KEYWORDS: Final = (b'"$ref"', b'"$dynamicRef"', b'"pattern')
# Bytes that a compiled schema holds: at least, and for each byte of its JSON.
_BASE, _FOR_EACH_BYTE = 8 * 1024, 20
# Limit on the schema's characters times the value's: a validator compares each part of the value
# with each part of the schema at most once, and an error copies its part of the value.
MAX_WORK: Final = 1_000_000_000
# The validator raises one of these for a value that it can't handle, such as a lone surrogate.
_NO_VALUE: Final = (ValueError, TypeError, RecursionError, OverflowError)


class CompiledSchema:
    """One schema of a tool's arguments or of a reply, ready to check values.

    ``whole_object``: the value is always an object, as a call's arguments are.
    """

    def __init__(self, raw: Any, *, whole_object: bool = True) -> None:
        self.raw = raw  # as the client sent it
        patterns = Patterns()
        # The checkable part of `raw`.
        self.schema = clean(raw, whole_object=whole_object, patterns=patterns)
        self.properties: dict[str, Any] = self.schema.get("properties", {})
        self.required: tuple[str, ...] = tuple(self.schema.get("required", ()))
        self.declared = frozenset(self.properties) | frozenset(self.required)  # the root's names
        # Parameter → the words with which its text must begin and end.
        self.frames = dict(_frames(raw))
        self.skips_patterns = patterns.skipped  # patterns that were too costly are not checked
        self._size = len(json.dumps(self.schema))
        self._validator = _validator(self.schema if self._size <= MAX_CHECKABLE else True)
        self.bytes = _BASE + _FOR_EACH_BYTE * self._size + PATTERN_BYTES - patterns.left  # it holds

    def is_checkable(self, value: Any) -> bool:
        """Whether neither schema nor value is too large; a small schema checks any value."""
        return self._size <= SMALL or (self._size <= MAX_CHECKABLE and not self._is_costly(value))

    def _is_costly(self, value: Any) -> bool:
        return self._size * len(json.dumps(value)) > MAX_WORK

    def accepts(self, value: Any) -> bool:
        """Whether ``value`` fits; True if validation costs too much or the validator fails."""
        if not self.is_checkable(value):
            return True
        with suppress(*_NO_VALUE):
            return bool(self._validator.is_valid(value))
        with suppress(*_NO_VALUE):
            return bool(self._validator.is_valid(_without_surrogates(value)))
        return True

    def names(self, value: str) -> bool:
        """Whether the raw schema has this text as a value: an option, a default, an example."""
        return json.dumps(value) in self._raw_text

    @cached_property
    def _raw_text(self) -> str:
        return json.dumps(self.raw)

    def errors(self, value: Any, limit: int) -> list[Any]:
        """Return up to ``limit`` ``jsonschema_rs.ValidationError``s; none if ``value`` fits.

        ``[UNEXPLAINED]`` if collecting them would cost too much.
        """
        if self.accepts(value):
            return []
        if self._is_costly(value):
            return [UNEXPLAINED]
        try:
            return self._first_errors(value, limit)
        except _NO_VALUE:
            return self._first_errors(_without_surrogates(value), limit)

    def _first_errors(self, value: Any, limit: int) -> list[Any]:
        if limit > 1:
            return list(islice(self._validator.iter_errors(value), limit))
        try:  # `validate` stops at the first error, `iter_errors` collects all of them
            self._validator.validate(value)
        except jsonschema_rs.ValidationError as error:
            return [error]
        return []


def _validator(schema: dict[str, Any] | bool) -> Any:
    def refuse(uri: str) -> Any:
        raise LookupError(f"{uri} is not part of the schema")

    with suppress(Exception):  # a schema that doesn't compile must not make calls invalid
        return jsonschema_rs.Draft202012Validator(
            schema,
            validate_formats=False,
            pattern_options=regex(),
            retriever=refuse,
            mask="it",  # messages say "it" instead of the value
        )
    return jsonschema_rs.Draft202012Validator(True)


def _frames(raw: Any) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield the frames of a schema's parameters, which the wire's dialects store as ``x-frame``."""
    properties = raw.get("properties") if isinstance(raw, dict) else None
    for name, schema in properties.items() if isinstance(properties, dict) else ():
        match schema:
            case {fields.FRAME: [str(opening), str(closing)]}:
                yield name, (opening, closing)


# Compiled schemas by content, in LRU order.
_cache: RecentByBytes[tuple[bytes, bool], CompiledSchema] = RecentByBytes(
    CACHE_BYTES // _BASE, CACHE_BYTES, lambda schema: schema.bytes
)
_lock = threading.Lock()
# Stands for every schema of more than MAX_SCHEMA bytes.
_TOO_LARGE: Final = CompiledSchema({"const": "x" * MAX_CHECKABLE})


def compile_schema(schema: Any, *, whole_object: bool = True) -> CompiledSchema:
    """Compile a schema; the result is cached by content.

    ``whole_object``: the value is an object, as a call's arguments are; a reply's may be any.
    """
    text = _json(schema)
    if text is None:
        return CompiledSchema(schema, whole_object=whole_object)
    if len(text) > MAX_SCHEMA:
        return _TOO_LARGE
    compiled = _cached(text, whole_object)
    if compiled is None:
        # Compile a copy: a cached schema must not change when the request does.
        compiled = CompiledSchema(json.loads(text), whole_object=whole_object)
        compiled.bytes += _FOR_EACH_BYTE * len(text)
        with _lock:
            _cache[kept(text), whole_object] = compiled
    return compiled


def _cached(text: bytes, whole_object: bool) -> CompiledSchema | None:
    with _lock:
        if (text, whole_object) in _cache:
            _cache.move_to_end((text, whole_object))
        return _cache.get((text, whole_object))


def is_quick(schema: Any, *, whole_object: bool = True) -> bool:
    """Whether :func:`compile_schema` takes no more than a few milliseconds."""
    text = _json(schema)
    if text is None or len(text) > MAX_SCHEMA:
        return True
    if len(text) <= _QUICK and not any(keyword in text for keyword in _SLOW_KEYWORDS):
        return True
    return _cached(text, whole_object) is not None


def _json(schema: Any) -> bytes | None:
    """Return a schema as JSON; None if it isn't JSON."""
    with suppress(TypeError, ValueError, RecursionError):
        return orjson.dumps(schema)
    with suppress(TypeError, ValueError, RecursionError):
        return json.dumps(schema).encode()  # integers beyond 64 bits, lone surrogates
    return None


def _without_surrogates(value: Any) -> Any:
    """Copy ``value`` with each lone surrogate replaced by U+FFFD, so that it encodes as UTF-8."""
    return json_text.decode(json.dumps(value).encode())[0]
