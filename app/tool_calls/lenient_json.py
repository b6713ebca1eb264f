"""Reading JSON as models write it when they slip, where it can be read in one way only.

A recursive-descent reader that goes through the text once and notes each leniency it needed, by
name. It gives up (`Unreadable`) rather than guess: it never makes up the end of a value, never
takes an unquoted word for a string, never drops a member. It looks at the text alone; what the
schema says about its result is the caller's business.

Leniencies: ``single_quotes``, ``python_literals``, ``trailing_comma``, ``unquoted_keys``,
``unescaped_newline`` (any control character inside a string), ``invalid_escape``, ``comments``,
``missing_closer``, ``extra_closer``, ``unescaped_quotes`` (only where asked for).
"""

from __future__ import annotations

import re
from typing import Any, Final

from app.tool_calls.json_text import Unreadable, join_pairs, read_float, read_integer

_SPACE = re.compile(r"[ \t\r\n\ufeff\u00a0]*")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_WORD = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_KEY = re.compile(r"[A-Za-z_$][A-Za-z0-9_$.-]*")
_PLAIN = {quote: re.compile(rf"[^{quote}\\\x00-\x1f]*") for quote in ('"', "'", "”")}
_CLOSING: Final = {'"': '"', "'": "'", "“": "”"}
_HEX = re.compile(r"[0-9a-fA-F]{4}")
_ESCAPES: Final = {
    '"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t",
}  # fmt: skip
_LITERALS: Final[dict[str, Any]] = {"true": True, "false": False, "null": None}
_PYTHON: Final[dict[str, Any]] = {"True": True, "False": False, "None": None}
# `C:\new\table`: with a backslash that means itself beside one that could be an escape, no one can
# say what either means.
_WOULD_BE_ESCAPED: Final = frozenset("bfnrtu")

# What follows the quote that really ends a string, by where the string stands.
_AFTER: Final = {
    "key": re.compile(r"\s*:"),
    "object": re.compile(r'\s*(?:\}\s*(?:[,}\]]|$)|,\s*"[^"\\\n]{1,80}"\s*:)'),
    "array": re.compile(r'\s*(?:\]\s*(?:[,}\]]|$)|,\s*["\d\[{tfn-])'),
}


class Reader:
    """Reads one value out of `text`, from `position` on; `used` names the leniencies, in order."""

    def __init__(
        self, text: str, position: int = 0, *, max_depth: int = 64, inner_quotes: bool = False
    ) -> None:
        self.text = text
        self.position = position
        self.used: dict[str, None] = {}
        self._max_depth = max_depth
        self._inner_quotes = inner_quotes
        self._open: list[str] = []

    def value(self, place: str = "object") -> Any:
        """The value at the position, which then stands behind it; raises `Unreadable`."""
        self._space()
        char = self._peek()
        if char == "{":
            return self._object()
        if char == "[":
            return self._array()
        if char in _CLOSING:
            return self._string(place)
        if char == "-" or "0" <= char <= "9":
            return self._number()
        word = _WORD.match(self.text, self.position)
        if word is None:
            raise self._error("a value")
        self.position = word.end()
        if word[0] in _LITERALS:
            return _LITERALS[word[0]]
        if word[0] in _PYTHON:
            self.used["python_literals"] = None
            return _PYTHON[word[0]]
        self.position = word.start()
        raise self._error("a value")

    def _object(self) -> dict[str, Any]:
        self._enter("{")
        pairs: list[tuple[str, Any]] = []
        self._space()
        if self._peek() == "}":
            self.position += 1
            self._open.pop()
            return {}
        while True:
            key = self._member_name()
            self._space()
            if self._peek() != ":":
                raise self._error("a colon")
            self.position += 1
            pairs.append((key, self.value("object")))
            if self._ends("}"):
                return join_pairs(pairs)

    def _array(self) -> list[Any]:
        self._enter("[")
        values: list[Any] = []
        self._space()
        if self._peek() == "]":
            self.position += 1
            self._open.pop()
            return values
        while True:
            values.append(self.value("array"))
            if self._ends("]"):
                return values

    def _enter(self, bracket: str) -> None:
        if len(self._open) >= self._max_depth:
            raise Unreadable("too_deep", f"are nested more than {self._max_depth} levels deep")
        self._open.append(bracket)
        self.position += 1

    def _ends(self, closer: str) -> bool:
        """After a member: go over the comma (False) or out of the container (True)."""
        opener, other = ("{", "]") if closer == "}" else ("[", "}")
        while True:
            self._space()
            char = self._peek(at_end=closer)
            if char == ",":
                self.position += 1
                self._space()
                if self._peek() != closer:
                    return False
                self.used["trailing_comma"] = None
                char = closer
            if char == closer:
                self.position += 1
                break
            if char == "" or (char == other and ("[" if other == "]" else "{") in self._open):
                # The end of the text, or of a container around this one: ours was never closed.
                self.used["missing_closer"] = None
                break
            if char != other:
                raise self._error(f"a comma or `{closer}`")
            self.used["extra_closer"] = None  # closes nothing that is open
            self.position += 1
        if self._open.pop() != opener:  # pragma: no cover - the stack mirrors the calls
            raise self._error(f"`{closer}`")
        return True

    def _member_name(self) -> str:
        self._space()
        if self._peek() in _CLOSING:
            return self._string("key")
        key = _KEY.match(self.text, self.position)
        if key is None:
            raise self._error("a field name")
        self.position = key.end()
        self.used["unquoted_keys"] = None
        return key[0]

    def _string(self, place: str) -> str:
        opening = self.text[self.position]
        closing = _CLOSING[opening]
        if opening != '"':
            self.used["single_quotes"] = None
        plain = _PLAIN[closing]
        self.position += 1
        parts: list[str] = []
        state = _StringState()
        while True:
            run = plain.match(self.text, self.position)
            if run is not None:
                parts.append(run[0])
                self.position = run.end()
            char = self._peek()
            if char == closing:
                self.position += 1
                if self._string_ends(place, state):
                    break
                parts.append(char)
            elif char == "\\":
                parts.append(self._escape(opening, state))
            else:
                self.used["unescaped_newline"] = None
                parts.append(char)
                self.position += 1
        return self._checked("".join(parts), state)

    def _string_ends(self, place: str, state: _StringState) -> bool:
        if not self._inner_quotes or _AFTER[place].match(self.text, self.position):
            return True
        state.inner_quotes += 1
        return False

    def _escape(self, opening: str, state: _StringState) -> str:
        char = self.text[self.position + 1 : self.position + 2]
        self.position += 2
        if char == "u" and _HEX.match(self.text, self.position):
            state.escapes.add(char)
            return self._code_point()
        if char in _ESCAPES:
            state.escapes.add(char)
            return _ESCAPES[char]
        if char == "'":
            if opening == '"':
                self.used["invalid_escape"] = None
                state.apostrophes = True
            return char
        if char in ("", "u", "x"):
            raise self._error("a whole escape")
        # Python keeps the backslash of an escape that it doesn't know. So do we: `"\d+"`.
        self.used["invalid_escape"] = None
        state.literal_backslash = True
        return "\\" + char if char not in "\r\n" else self._error_value()

    def _error_value(self) -> str:
        raise self._error("no backslash at the end of a line")

    def _code_point(self) -> str:
        unit = int(self.text[self.position : self.position + 4], 16)
        self.position += 4
        if 0xD800 <= unit < 0xDC00 and self.text.startswith("\\u", self.position):
            low = _HEX.match(self.text, self.position + 2)
            if low is not None and 0xDC00 <= int(low[0], 16) < 0xE000:
                self.position += 6
                return chr(0x10000 + ((unit - 0xD800) << 10) + int(low[0], 16) - 0xDC00)
        return chr(unit)

    def _checked(self, value: str, state: _StringState) -> str:
        """`value`, unless the string's escapes can be read in two ways."""
        if state.literal_backslash and not _WOULD_BE_ESCAPED.isdisjoint(state.escapes):
            raise Unreadable(
                "invalid_json", "mix backslashes that are escapes with some that aren't"
            )
        if state.apostrophes and "'''" in value:
            # The shell's 'It'\''s': there the backslash is meant.
            raise Unreadable("invalid_json", "hold `\\'`, which JSON does not have")
        if state.inner_quotes:
            self.used["unescaped_quotes"] = None
            if state.inner_quotes % 2:
                raise Unreadable("invalid_json", "hold a quotation mark that is not escaped")
        return value

    def _number(self) -> int | float:
        number = _NUMBER.match(self.text, self.position)
        if number is None:
            raise self._error("a number")
        end = number.end()
        if end == len(self.text):
            raise Unreadable("truncated", "break off in or behind a number")
        if self.text[end] not in " \t\r\n,]}/":
            raise self._error("a number")
        self.position = end
        if number[1] is None and number[2] is None:
            return read_integer(number[0])
        return read_float(number[0])

    def _space(self) -> None:
        while True:
            match = _SPACE.match(self.text, self.position)
            self.position = match.end() if match is not None else self.position
            if not self.text.startswith("/", self.position):
                return
            comment = _COMMENT.match(self.text, self.position)
            if comment is None:
                return
            self.used["comments"] = None
            self.position = comment.end()

    def _peek(self, at_end: str = "") -> str:
        """The next character; at the text's end "" where a closer may be missing, else an error."""
        char = self.text[self.position : self.position + 1]
        if not char and not at_end:
            raise Unreadable("truncated", "break off before their end")
        return char

    def _error(self, expected: str) -> Unreadable:
        around = self.text[max(0, self.position - 20) : self.position + 20]
        return Unreadable(
            "invalid_json",
            f"are not valid JSON: expected {expected} at character {self.position + 1}, "
            f"near `{around}`",
        )


class _StringState:
    """What was seen inside one string."""

    __slots__ = ("apostrophes", "escapes", "inner_quotes", "literal_backslash")

    def __init__(self) -> None:
        self.apostrophes = False
        self.escapes: set[str] = set()
        self.inner_quotes = 0
        self.literal_backslash = False
