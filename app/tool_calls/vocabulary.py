"""Which parameters must name something, and which hold free text.

Agents delete by writing nothing: an empty `new_string` or `content` is right. An empty `path` or
`query` never is. The schema seldom says which is which, so the parameter's name decides, word by
word: its last word says what it is (`message_id` is an id, `file_content` is content).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from app.tool_calls.names import words

_NAMING: Final = """
    path file filename filepath dir directory folder url uri link href host hostname domain endpoint
    address email query search pattern regex glob command cmd name names id ids uuid guid key keys
    identifier username user account title symbol ticker code city country state region location
    place destination origin area street zip zipcode timezone language lang locale currency date
    time day month year topic subject keyword keywords tool function method action operation mode
    type kind category format unit units model version branch repo repository commit tag package
    module class table column database collection index selector element ref reference target
    recipient receiver sender to from phone number company product item brand species gene
"""

# Texts whose emptiness says something: nothing to put there, nothing to add.
_FREE_TEXT: Final = """
    content contents text body string replace replacement repl value values data message
    messages msg comment comments note notes description desc summary reason reasoning thought
    thoughts explanation details detail prefix suffix separator sep delimiter indent indentation
    padding input stdin output code snippet patch diff payload html css markdown md json xml
    yaml csv template args arguments options flags params parameters extra context default
    fallback label caption footer header headers filter filters line lines block remark remarks
    annotation docstring
"""

# Those whose value points at one thing, and has no markup of any kind at its end.
_PLACES: Final = """
    path file filename filepath dir directory folder id uuid guid identifier symbol ticker city
    country state region location street zip zipcode timezone locale currency date day month year
    repo repository branch commit version phone timestamp
"""

NAMING: Final = frozenset(_NAMING.split())
FREE_TEXT: Final = frozenset(_FREE_TEXT.split())
PLACES: Final = frozenset(_PLACES.split())
# Nor has an address or a command one that sticks to its end.
_COMMANDS: Final = frozenset({"command", "cmd", "sql", "bash", "shell",
    "url", "uri", "link", "href", "host", "hostname", "domain", "endpoint", "email"})  # fmt: skip
# What holds patterns to look for: anything may be one.
SEARCHING: Final = frozenset({"pattern", "regex", "regexp", "grep", "glob", "find", "search"})
# Parameters for which "string" is a value: a column's type, a field's kind.
_TYPES: Final = frozenset({"type", "types", "dtype", "datatype", "kind", "format"})
# … and a blank: keys that are pressed, characters that are typed or split at. No secret is one.
_CHARACTERS: Final = frozenset({"key", "keys", "keystroke", "keystrokes", "char", "chars",
    "character", "characters", "hotkey", "shortcut"})  # fmt: skip
_SECRET: Final = frozenset({"api", "access", "auth", "secret", "private", "public", "license",
    "account", "signing", "encryption"})  # fmt: skip

# Last words that say only that there are characters: the word before them decides.
_VAGUE: Final = frozenset({"text", "string", "value", "values", "data", "input", "line", "code"})
_EMPTY_ENDINGS: Final = frozenset({"here", "str", "arg", "param", "parameter", "field", "with"})
# `new_source`, `old_block`: what edits put in and take out, unless it is a name or a path.
_CHANGES: Final = frozenset({"new", "old", "insert", "inserted", "updated"})
# The text of a file is its content.
_CONTENTS: Final = _CHANGES | {"file"}


def deciding(parameter: str) -> list[str]:
    """The words of a parameter's name, without numbers and endings that say nothing."""
    listed = [word for word in words(parameter) if not word.isdecimal()]
    while len(listed) > 1 and listed[-1] in _EMPTY_ENDINGS:
        listed.pop()
    return listed


@dataclass(frozen=True, slots=True, eq=False)
class Vocabulary:
    """Words for parameter names, in lower case. Make one and share it: plans are kept by identity.

    `unlisted` says what a required parameter is whose name has words of neither list (``species``):
    True, it must name something.
    """

    naming: frozenset[str] = NAMING
    free_text: frozenset[str] = FREE_TEXT
    unlisted: bool = True

    def holds(self, parameter: str) -> str:
        """How a marker that was left behind is told: ``place``, ``command``, "" for not at all."""
        listed = deciding(parameter)
        if not listed or not self.must_name(parameter):
            return ""
        last = listed[-2] if len(listed) > 1 and listed[-1] == "name" else listed[-1]
        either = {last, last.removesuffix("s")}
        if not either.isdisjoint(_COMMANDS):
            return "command"
        return "" if either.isdisjoint(PLACES) else "place"

    def must_name(self, parameter: str) -> bool:
        """Whether a required string parameter of this name must not be empty."""
        listed = deciding(parameter)
        if not listed:
            return self.unlisted
        last, before = listed[-1], listed[:-1]
        if last in _VAGUE and before:
            return any(word in self.naming for word in before) and _CONTENTS.isdisjoint(before)
        if last in self.naming and last not in self.free_text:
            return True
        if last in self.free_text or not _CHANGES.isdisjoint(listed):
            return False
        return self.unlisted or any(word in self.naming for word in before)


DEFAULT: Final = Vocabulary()


def may_be_blank(parameter: str) -> bool:
    """Whether a space is a value of this parameter: a key that is pressed, or a character."""
    listed = set(words(parameter))
    return not _CHARACTERS.isdisjoint(listed) and _SECRET.isdisjoint(listed)


def names_types(parameter: str) -> bool:
    """Whether "string" is a value of this parameter: a type, a kind, a format."""
    return not _TYPES.isdisjoint(words(parameter))
