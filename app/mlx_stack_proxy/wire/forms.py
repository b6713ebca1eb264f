"""Reads uploaded forms (``multipart/form-data``, RFC 7578) strictly.

The proxy decides by a form's fields, and upstream parses the same bytes again. So this reader
refuses every form that two parsers could read differently.
"""

from __future__ import annotations

import re

from msgspec import Struct

_TYPE = re.compile(
    r"""multipart/form-data\s*;\s*boundary=(?P<quote>"?)(?P<boundary>[\w'()+,./:=?-]{1,70})(?P=quote)"""
    r"""(?:\s*;\s*charset="?utf-8"?)?""",
    re.ASCII | re.IGNORECASE,
)
_LINE = re.compile(rb"([A-Za-z-]++):[ \t]*+([^\r\n]*+)")
_DISPOSITION = re.compile(
    rb'form-data; ?name="([\w.\[\]-]+)"'
    rb'(; ?filename="[^"\r\n\\]*"(?:; ?filename\*=[^;"\s]*)?)?',
    re.ASCII,
)


MAX_FIELDS = 1000  # the limit of LiteLLM's form parser (Starlette's)


class BadForm(ValueError):
    """The body is not a form, or could be read in more than one way."""


class Field(Struct, frozen=True):
    """One field of a form."""

    name: str
    value: str | None  # None: a file
    start: int  # with the delimiter before it, the field is ``body[start:end]``
    end: int


def fields_of(content_type: str, body: bytes) -> list[Field]:
    """Return the fields of a form, in order. Raises :class:`BadForm`."""
    match = _TYPE.fullmatch(content_type.strip())
    if match is None:
        raise BadForm("its content type must name a boundary and nothing else")
    delimiter = b"--" + match["boundary"].encode()
    if not body.startswith(delimiter + b"\r\n"):
        raise BadForm("it does not begin with its boundary")
    fields: list[Field] = []
    start, index = 0, len(delimiter)
    while (end := body.find(b"\r\n" + delimiter, index)) != -1:
        if len(fields) == MAX_FIELDS:
            raise BadForm(f"it has more than {MAX_FIELDS:,} fields")
        fields.append(_field(body, index, end, start))
        start, index = end + 2, end + 2 + len(delimiter)
        if body.startswith(b"--", index):
            if body[index + 2 :] not in (b"", b"\r\n"):
                raise BadForm("something follows its end")
            return fields
    raise BadForm("it does not end")


def _field(body: bytes, index: int, end: int, start: int) -> Field:
    """Read the part between two delimiters: headers, an empty line, content."""
    if not body.startswith(b"\r\n", index):
        raise BadForm("something follows a boundary")
    blank = body.find(b"\r\n\r\n", index, end + 2)
    if blank == -1:
        raise BadForm("a part's headers do not end")
    name, is_file = _named(body[index + 2 : blank])
    content = body[blank + 4 : end]
    try:
        value = None if is_file else content.decode()
    except UnicodeDecodeError:
        raise BadForm("a field is not UTF-8") from None
    return Field(name, value, start, end + 2)


def _named(head: bytes) -> tuple[str, bool]:
    """Return a part's field name, and whether the part is a file."""
    dispositions = []
    for line in head.split(b"\r\n"):
        match = _LINE.fullmatch(line)
        if match is None:
            raise BadForm("a part has a malformed header")
        if match[1].lower() == b"content-disposition":
            dispositions.append(match[2])
    disposition = _DISPOSITION.fullmatch(dispositions[0]) if len(dispositions) == 1 else None
    if disposition is None:
        raise BadForm("a part has no usable name")
    return disposition[1].decode(), disposition[2] is not None
