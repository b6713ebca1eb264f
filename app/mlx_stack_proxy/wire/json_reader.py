"""The one reader of JSON that models write: strict, or lenient where only one reading exists.

``parse`` is strict. ``JsonReader`` is a recursive-descent parser that reads the text once and
records each leniency that it needed; a text that needs none is strict JSON. It raises
``Unreadable`` rather than guess: it never invents the end of a string or number, never takes an
unquoted word for a string, never drops a member. It knows no schema; the caller validates the
value.

The same parser reads two dialects: Python's literals (``python=True``: tuples, triple quotes,
Python's escapes) and Gemma's objects (``mark``: Gemma's quotation mark; unquoted words are strings
there).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final

from .json_text import (
    MAX_CHARS,
    NUMBER,
    Unreadable,
    check_depth,
    check_levels,
    join_pairs,
    not_json,
    read_number,
)

# The leniencies, and the error message of each if the text has to be strict.
LENIENCIES: Final = {
    "single_quotes": 'a string whose quotation mark is not `"`',
    "python_literals": "a literal that is not lower-case",
    "trailing_comma": "a comma too many",
    "missing_comma": "a comma is missing",
    "odd_number": "a number that JSON writes otherwise",  # .25, 1., +1, 1_000
    "unquoted_keys": "a field name without quotation marks",
    "equals_sign": "no colon follows the field name",  # but `=` or `=>`
    "unescaped_newline": "a line break or control character inside a string",
    "invalid_escape": "a backslash that escapes nothing",
    "comments": "a comment",
    "missing_closer": "a closing bracket is missing",
    "extra_closer": "one closing bracket too many",
    "odd_space": "a space that JSON lacks",
}
# Whitespace that JSON doesn't allow: the byte order mark, and that of word processors and Chinese.
ODD_SPACES: Final = "\u00a0\u2000-\u200b\u202f\u205f\u2060\u3000\ufeff"
_SPACE = re.compile(rf"[ \t\r\n{ODD_SPACES}]*")
# `//` may not follow a number: in `29979//458` it may begin a comment or be a division.
_AFTER_NUMBER = re.compile(rf"[ \t\r\n,\])}}{ODD_SPACES}]|/\*")
# A comment with a quotation mark may hold data; one that runs to the text's end has swallowed the
# closing brackets. Neither is skipped.
_COMMENT = re.compile(r"//[^\n\"]*(?=\n)|/\*[^\"*]*(?:\*(?!/)[^\"*]*)*\*/")
# Complete numbers in a spelling that JSON lacks.
_ODD_NUMBER = re.compile(r"[+-]?(?:\.\d+|\d+\.(?!\d)|[1-9]\d{0,2}(?:_\d{3})+)|\+\d+(?:\.\d+)?")
# The next field's name and colon, which prove that a comma is missing.
_NEXT_PAIR = re.compile(r"\"[^\"\\\n]{1,200}\"[ \t\r\n]*:")
_COLON = re.compile(r":|=>|=(?!=)")
_WORD = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_KEY = re.compile(r"[A-Za-z_$][A-Za-z0-9_$.-]*")
# A keyword argument's name, followed by `=` or by a wrong `:`.
_ARGUMENT = re.compile(r"([^\W\d][\w-]*+)\s*+(?:=(?!=)|:)")
_BODY = {
    quote: re.compile(rf"[^{quote}\\]*(?:\\.[^{quote}\\]*)*", re.DOTALL)
    for quote in ('"', "'", "”")
}
_TRIPLE = re.compile(r"(\"\"\"|''')((?>(?:(?!\1)[^\\]|\\.)*))\1", re.DOTALL)
# An unquoted string in Gemma's dialect.
_PLAIN = re.compile(r"[^\W\d][^,{}\[\]<:\"']*+(?=[,}\]])")
_CONTROL = re.compile(r"[\x00-\x1f]")
# An unescaped single quote that is not an apostrophe within a word.
_BARE_QUOTE = re.compile(r"(?<!\\)(?:\\\\)*(?:(?<!\w)'|'(?!\w))")
# A Windows path. If one of its backslashes can only be literal, all are, because file names there
# have no control characters.
PATH = re.compile(r"[A-Za-z]:(?:\\[^\\/:*?\"<>|\s]++)+")
_ESCAPE = re.compile(r"(?:\\u[0-9a-fA-F]{4})+|\\x[0-9a-fA-F]{2}|\\U[0-9a-fA-F]{8}|\\.", re.DOTALL)
_CLOSING: Final = {'"': '"', "'": "'", "“": "”"}
_ESCAPES: Final = {
    "'": "'", '"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t",
}  # fmt: skip
_LITERALS: Final[dict[str, Any]] = {
    "true": True, "false": False, "null": None, "True": True, "False": False, "None": None,
    "TRUE": True, "FALSE": False, "NULL": None,
}  # fmt: skip
# If one backslash of a string can only be literal, a `\n` or `\t` elsewhere in it is ambiguous: in
# `\d\n`, a line break or two characters.
_WOULD_BE_ESCAPED: Final = frozenset("bfnrtuxU")
_MISPLACED: Final = frozenset({"missing_closer", "extra_closer"})


def parse(text: str) -> Any:
    """Return the value of a strict JSON text, in linear time.

    Raises :class:`Unreadable`, even for an object with two different values for one key, because
    parsers disagree about which of them counts.
    """
    try:
        return parse_unexplained(text)
    except ValueError:
        pass
    if not text.strip():
        raise Unreadable("invalid_json", "are empty")
    reader = JsonReader(text, strict=True)
    reader.value()
    raise not_json(text, "more follows the value", reader.position)


def parse_unexplained(text: str) -> Any:
    """Like :func:`parse`, but raise a plain ``ValueError`` for a text that isn't strict."""
    if len(text) > MAX_CHARS:
        raise Unreadable("too_large", f"are larger than {MAX_CHARS:,} characters")
    check_depth(text)
    return _DECODER.decode(text)


def _no_constant(text: str) -> Any:
    raise Unreadable("invalid_json", f"hold {text}, which JSON does not have")


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=join_pairs, parse_constant=_no_constant, parse_float=read_number
)


class JsonReader:
    """Reads one value from a text; used once.

    ``strict``: raise at the first leniency that the text needs.
    """

    def __init__(
        self,
        text: str,
        position: int = 0,
        *,
        python: bool = False,
        mark: str = "",
        strict: bool = False,
    ) -> None:
        self.text = text
        self.position = position  # index of the next character to read
        self.used: dict[str, None] = {}  # the leniencies needed so far, in order
        self._python = python
        self._mark = mark
        self._strict = strict
        self._open: list[str] = []  # the opening brackets around the position

    def value(self) -> Any:
        """Read the value at ``position`` and advance past it.

        Raises ``Unreadable`` where the value has no reading, or more than one.
        """
        self._space()
        char = self._peek()
        if char == "{":
            return join_pairs(self._members("{", "}", self._pair))
        if char == "[":
            return self._members("[", "]", self.value)
        if self._python and char == "(":
            return self._members("(", ")", self.value)
        if char in _CLOSING or self._at_mark():
            return self._string()
        if char in "-+." or "0" <= char <= "9":
            return self._number()
        word = _WORD.match(self.text, self.position)
        if word is None or word[0] not in _LITERALS:
            # Only Gemma's dialect has strings without quotes.
            plain = _PLAIN.match(self.text, self.position) if self._mark else None
            if plain is None:
                raise self._error("a value")
            self.position = plain.end()
            return plain[0].strip()
        if word[0][0].isupper():
            self._needs("python_literals")
        self.position = word.end()
        return _LITERALS[word[0]]

    def arguments(self) -> list[tuple[str | None, Any]]:
        """Read a Python call's arguments from their opening bracket: (keyword or None, value)."""
        return self._members("(", ")", self._argument)

    def _argument(self) -> tuple[str | None, Any]:
        self._space()
        name = _ARGUMENT.match(self.text, self.position)
        if name is not None:
            self.position = name.end()
        return name and name[1], self.value()

    def _at_mark(self) -> bool:
        return bool(self._mark) and self.text.startswith(self._mark, self.position)

    def _members(self, opener: str, closer: str, read: Callable[[], Any]) -> list[Any]:
        self._open.append(opener)
        check_levels(len(self._open))
        self.position += 1
        self._space()
        if self._peek() == ",":  # a leading comma: nothing is on its other side
            self._needs("trailing_comma")
            self.position += 1
            self._space()
        if self._peek() == closer:
            self.position += 1
            self._open.pop()
            return []
        members = [read()]
        while not self._ends(closer, members[-1]):
            members.append(read())
        return members

    def _pair(self) -> tuple[str, Any]:
        self._space()
        if self._peek() in _CLOSING or self._at_mark():
            key = self._string()
        elif (name := _KEY.match(self.text, self.position)) is not None:
            self._needs("unquoted_keys")
            key, self.position = name[0], name.end()
        else:
            raise self._error("a field name")
        self._space()
        colon = _COLON.match(self.text, self.position)
        if colon is None:
            self._peek()
            raise self._error("a colon")
        if colon[0] != ":":
            self._needs("equals_sign")
        self.position = colon.end()
        return key, self.value()

    def _ends(self, closer: str, member: Any) -> bool:
        """Skip the comma after a member; return whether the container ends instead."""
        other_closer, opener = ("]", "[") if closer == "}" else ("}", "{")
        while True:
            self._space()
            char = self._peek(at_end=closer)
            if self.used.keys() >= _MISPLACED and char not in ("", "}", "]"):
                # One closer is missing and one is surplus: the next member's container is unclear.
                raise self._error(f"`{closer}`")
            if char == ",":
                self.position += 1
                self._space()
                if self._peek() != closer:
                    return False
                self._needs("trailing_comma")
                char = closer
            if char == closer:
                self.position += 1
                break
            if char == "" or (char == other_closer and opener in self._open):
                # The text or an outer container ends here, so this container was never closed.
                self._needs("missing_closer")
                break
            if self._lacks_comma(closer, member):
                self._needs("missing_comma")
                return False
            if char != other_closer:
                raise self._error(f"a comma or `{closer}`")
            self._needs("extra_closer")  # no open bracket matches
            self.position += 1
        self._open.pop()
        return True

    def _lacks_comma(self, closer: str, member: Any) -> bool:
        """Whether the next member follows without a comma: a field, or one more object or list.

        After a string, the text up to the next quotation mark may belong to that string.
        """
        if closer == "}":
            after_text = isinstance(member[1], str)
            return not after_text and _NEXT_PAIR.match(self.text, self.position) is not None
        return closer == "]" and self.text[self.position : self.position + 1] in ("{", "[")

    def _string(self) -> str:
        if self._at_mark():
            start = self.position + len(self._mark)
            end = self.text.find(self._mark, start)
            if end < 0:
                raise self._cut_string(start)
            self.position = end + len(self._mark)
            return self.text[start:end]
        triple = _TRIPLE.match(self.text, self.position) if self._python else None
        if triple is not None:
            self.position = triple.end()
            return self._unescaped(triple[2], "'", triple.start(2))
        opening = self.text[self.position]
        if opening != '"':
            self._needs("single_quotes")
        start = self.position + 1
        closing = _CLOSING[opening]
        match = _BODY[closing].match(self.text, start)
        body = match[0] if match is not None else ""
        self.position = start + len(body) + 1
        if self.text[self.position - 1 : self.position] != closing:
            raise self._cut_string(start)
        if control := _CONTROL.search(body):
            self._needs("unescaped_newline", start + control.start())
        return self._unescaped(body, opening, start) if "\\" in body else body

    def _number(self) -> int | float:
        number = NUMBER.match(self.text, self.position)
        end = number.end() if number else self.position
        if number and end == len(self.text):
            raise Unreadable("truncated", "break off in or after a number")
        if number is None or not _AFTER_NUMBER.match(self.text, end):
            number = _ODD_NUMBER.match(self.text, self.position)
            end = number.end() if number else self.position
            if number is None or not _AFTER_NUMBER.match(self.text, end):
                raise self._error("a number")
            self._needs("odd_number")
        self.position = end
        return read_number(number[0].replace("_", "").lstrip("+"))

    def _space(self) -> None:
        while True:
            match = _SPACE.match(self.text, self.position)
            if match is not None and match[0]:
                if not match[0].isascii():
                    self._needs("odd_space")
                self.position = match.end()
            if not self.text.startswith("/", self.position):
                return
            comment = _COMMENT.match(self.text, self.position)
            if comment is None:
                return
            self._needs("comments")
            self.position = comment.end()

    def _peek(self, at_end: str = "") -> str:
        """Return the next character; at the text's end "" if ``at_end`` is set, else raise.

        ``at_end``: the closer that may be missing there.
        """
        char = self.text[self.position : self.position + 1]
        if not char and (self._strict or not at_end):
            raise Unreadable("truncated", "break off before their end")
        return char

    def _needs(self, leniency: str, at: int | None = None) -> None:
        """Record a leniency that the text needs at ``at``, by default at the position."""
        if self._strict:
            raise not_json(self.text, LENIENCIES[leniency], self.position if at is None else at)
        self.used[leniency] = None

    def _cut_string(self, start: int) -> Unreadable:
        beginning = self.text[start : start + 40]
        return Unreadable("truncated", f"break off inside the string `{beginning}`")

    def _error(self, expected: str) -> Unreadable:
        return not_json(self.text, f"expected {expected}", self.position)

    def _unescaped(self, body: str, opening: str, start: int) -> str:
        """Replace a string's escapes; raise ``Unreadable`` where they are ambiguous.

        ``start``: the offset of the string's body in the text.
        """
        # Single quotes anywhere mean that Python wrote the text: use Python's escapes.
        in_json = opening == '"' and "single_quotes" not in self.used and not self._python
        characters = {escape: _meant(escape, in_json) for escape in _ESCAPE.findall(body)}
        letters = {escape[1] for escape, character in characters.items() if character != escape}
        literal = next((escape for escape, char in characters.items() if escape == char), "")
        broken = next((escape for escape, char in characters.items() if not char), "")
        if (literal or broken) and PATH.fullmatch(body):
            self._needs("invalid_escape", start + body.index(literal or broken))
            return body
        if broken:
            raise not_json(self.text, LENIENCIES["invalid_escape"], start + body.index(broken))
        if literal and not _WOULD_BE_ESCAPED.isdisjoint(letters):
            problem = "a string mixes backslashes that are escapes with some that are not"
            raise not_json(self.text, problem, start + body.index(literal))
        apostrophes = in_json and "\\'" in characters
        if apostrophes and _BARE_QUOTE.search(body):
            # In quoted code, `\'` may be two characters: 'It'\''s', print('it\'s').
            raise not_json(self.text, "`\\'` is no escape", start + body.index("\\'"))
        if literal or apostrophes:
            self._needs("invalid_escape", start + body.index(literal or "\\'"))
        return _ESCAPE.sub(lambda match: characters[match[0]], body)


def _meant(escape: str, in_json: bool) -> str:
    """Return the character that an escape stands for; "" if it is broken.

    An unknown escape, such as ``\\d``, stands for itself, as in Python.
    """
    char, digits = escape[1], escape[2:]
    if digits and char == "u":
        return _code_points(escape)
    if digits and not in_json and int(digits, 16) < 0x110000:
        return chr(int(digits, 16))
    return "" if char in "ux\r\n" else _ESCAPES.get(char, escape)


def _code_points(escapes: str) -> str:
    """Decode a run of ``\\uXXXX``: join surrogate pairs, keep lone surrogates."""
    units = b"".join(int(unit, 16).to_bytes(2, "little") for unit in escapes[2:].split("\\u"))
    return units.decode("utf-16-le", "surrogatepass")
