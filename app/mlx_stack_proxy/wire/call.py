"""A tool call: a piece of it in a chunk, the call itself, and both as OpenAI writes them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Literal

import orjson
from msgspec import UNSET, Meta, Struct, UnsetType

from .growing import GrowingText

_TOKENS = re.compile(r'\\.|["\[\]{}]', re.DOTALL)
_STEPS: Final = {"{": 1, "[": 1, "}": -1, "]": -1}

Index = Annotated[int, Meta(ge=0)]


class Function(Struct, forbid_unknown_fields=True, gc=False):
    """The function in a piece of a call; "" where the piece has no name or no arguments."""

    name: str = ""
    arguments: str = ""


class CallPiece(Struct, forbid_unknown_fields=True, gc=False):
    """A piece of a tool call. ``index``: the call's position in the reply."""

    index: Index
    function: Function
    id: str = ""
    type: Literal["function"] | UnsetType = UNSET


class OddPiece(CallPiece, gc=False):
    """A piece that was not in OpenAI's form."""

    was_object: bool = False  # the arguments came as a JSON object, not as its text
    odd: bool = False  # it lacked the index, the function, or the type next to a name
    more: dict[str, Any] | None = None  # further fields


class JsonEnd:
    """Detects the end of a JSON object that arrives in pieces; linear in their total length."""

    __slots__ = ("_backslash", "_depth", "_in_string", "blank", "over", "reached")

    def __init__(self) -> None:
        self.blank = True  # only whitespace has arrived
        self.reached = False  # the object is closed, and only whitespace followed
        self.over = False  # something else followed
        self._depth = 0  # open brackets
        self._in_string = False
        self._backslash = ""  # a trailing backslash, whose escaped character is still to come

    def add(self, piece: str) -> None:
        """Read the next piece."""
        if self.over or not piece or piece.isspace():
            return
        if self.reached:
            self.reached, self.over = False, True
            return
        self.blank = False
        piece = self._backslash + piece
        for token in _TOKENS.finditer(piece):
            mark = token[0]
            if mark == '"':
                self._in_string = not self._in_string
            elif not self._in_string and (step := _STEPS.get(mark)):
                self._depth += step
                if self._depth <= 0:
                    self.over = bool(piece[token.end() :].strip())
                    self.reached = not self.over
                    return
        self._backslash = "\\" if (len(piece) - len(piece.rstrip("\\"))) % 2 else ""


class Call:
    """A tool call, either found whole (in a text, for example) or assembled from pieces."""

    __slots__ = (
        "_json", "_whole", "again", "format", "id", "more", "name", "odd", "was_object", "written",
    )  # fmt: skip

    def __init__(
        self, name: str, arguments: str, id: str = "", *, odd: bool = False, format: str = ""
    ) -> None:
        self.id = id
        self.name = name
        self.written = GrowingText(arguments)
        self.format = format  # the text format that it was written in; "": a proper tool call
        self.more: list[dict[str, Any]] = []  # unknown fields of its pieces
        self.was_object = False  # upstream sent an object; clients need JSON text
        self.odd = odd  # a client that assembles the pieces itself might get another call
        # The tool named by a piece without an id after this call was complete: arguments that
        # follow begin another call of this tool. "": there was no such piece.
        self.again = ""
        self._json: JsonEnd | None = None  # made when first needed
        self._whole: bool | None = None  # whether the arguments, once complete, are an object

    @property
    def arguments(self) -> str:
        """The arguments as the model wrote them, meant to be the JSON text of an object."""
        return self.written.text()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Call) and self._values() == other._values()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Call{self._values()}"

    def _values(self) -> tuple[str | bool, ...]:
        return self.id, self.name, self.arguments, self.was_object, self.odd, self.again

    def ends_before(self, piece: CallPiece) -> bool:
        """Whether a piece with this call's index begins another call.

        Some servers omit the index or give every call the same; LiteLLM makes it 0 for each.
        """
        function = piece.function
        name = function.name or self.again
        if not name or not self.name:
            return False
        if piece.id and self.id:
            return piece.id != self.id
        if name != self.name:
            return self._is_object() or self._end().blank
        # Equal name and arguments: the server sent the same call twice.
        new_arguments = function.arguments.strip()
        if not new_arguments or not self._is_object():
            return False
        return new_arguments != self.arguments.strip()

    def goes_on_with(self, piece: CallPiece) -> bool:
        """Whether a piece with a new index continues this call: it has nothing but arguments.

        SGLang sends one call as two entries: its name, then its arguments under another index.
        """
        bare = not piece.function.name and not piece.id and bool(piece.function.arguments.strip())
        end = self._end()
        return bare and bool(self.name) and not (end.reached or end.over)

    def add(self, piece: CallPiece) -> None:
        """Append a piece."""
        name, arguments = piece.function.name, piece.function.arguments
        # A repeated id or name is odd: many clients append it, as they append arguments.
        if name or piece.id:
            self.odd = self.odd or bool((self.id and piece.id) or (self.name and name))
            if name and not piece.id and self._is_object():
                self.again = name
            self.id = self.id or piece.id
            self.name = self.name or name
        self.written.add(arguments)
        if self._json is not None:
            self._json.add(arguments)
        if type(piece) is not CallPiece:
            self.note_odd(piece)

    def note_odd(self, piece: CallPiece) -> None:
        """Record what was odd about a piece that was not in form."""
        if isinstance(piece, OddPiece):
            self.odd = self.odd or piece.odd
            self.was_object = self.was_object or piece.was_object
            if piece.more is not None:
                self.more.append(piece.more)

    def _is_object(self) -> bool:
        """Whether the arguments so far are one JSON object; parsed at most once."""
        if not self._end().reached:
            return False
        if self._whole is None:
            self._whole = object_in(self.arguments) is not None
        return self._whole

    def _end(self) -> JsonEnd:
        if self._json is None:
            self._json = JsonEnd()
            self._json.add(self.arguments)
        return self._json


def object_in(arguments: str) -> dict[str, Any] | None:
    """Return the one JSON object that the arguments hold, or None."""
    try:
        value = orjson.loads(arguments)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


def as_function(function: Any, **fields: Any) -> dict[str, Any]:
    """Wrap a function as OpenAI does: in a tool, a chosen tool, or a call."""
    return {**fields, "type": "function", "function": function}


def call_fields(id: str | None, name: str, arguments: str) -> dict[str, Any]:
    """Return a call as a JSON object. ``id`` None: omit the id."""
    fields = {} if id is None else {"id": id}
    return as_function({"name": name, "arguments": arguments}, **fields)


def functions_in(message: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the ``function`` object (``name``, ``arguments``) of each tool call in a message."""
    tool_calls = message.get("tool_calls") if isinstance(message, Mapping) else None
    for call in tool_calls if isinstance(tool_calls, list) else ():
        function = call.get("function") if isinstance(call, Mapping) else None
        if isinstance(function, Mapping):
            yield function
