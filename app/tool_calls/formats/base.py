"""What every format is made of: the text being read, the calls found in it, a row of the table."""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping
from typing import Any

from app.tool_calls.names import MAX_NAME, NAMESPACE, squash

from ...frozen import frozen

Tools = Mapping[str, Mapping[str, Any]]

# Characters that failed readings may look at, in all, before the rest of a reply is taken as text.
# Successful readings are not counted: they consume what they read, so they are linear anyway.
READING_BUDGET = 2_000_000
# More calls than this in one reply are no plan but a loop; the rest of the reply stays text.
MAX_CALLS = 256

# What `names.NAMESPACE` matches, as `squash` leaves it.
_NAMESPACES = ("functions", "tools", "defaultapi")


class Exhausted(Exception):
    """The reading budget is used up: what follows stays text."""


@frozen
class Call:
    """A call as written: `name` not yet matched to a tool, `arguments` JSON text (or raw text)."""

    name: str
    arguments: str


@frozen
class Block:
    """A stretch of text that holds calls; without any, one that is not to be searched for them.

    `end` is the index after it, `text` what of the inside is prose for the reader of the reply.
    """

    end: int
    calls: tuple[Call, ...]
    text: str = ""


class SpelledTools:
    """The tools of one request, by name and by the spellings that mean the same name."""

    __slots__ = ("_loose", "schemas")

    def __init__(self, tools: Tools) -> None:
        self.schemas = tools
        self._loose: dict[str, str | None] | None = None

    def resolve(self, name: str) -> str | None:
        """The tool that `name` means, or None where it is none of them or could be two.

        A spelling with other case or separators, or with a namespace before it, is the same name.
        """
        if name in self.schemas:
            return name
        if len(name) > MAX_NAME:
            return None
        name = name.strip()
        if name in self.schemas:
            return name
        found = self._loose_names().get(squash(name))
        if found is not None:
            return found
        namespace = NAMESPACE.match(name)
        return self.resolve(name[namespace.end() :]) if namespace else None

    def could_start(self, part: str) -> bool:
        """Whether a name that begins with `part` could still be one of the tools."""
        if len(part) > MAX_NAME:
            return False
        part = squash(part)
        if any(name.startswith(part) for name in self._loose_names()):
            return True
        for namespace in _NAMESPACES:
            # "functions." has an "s" that may be missing.
            if namespace.startswith(part):
                return True
            for spelled in (namespace, namespace.removesuffix("s")):
                if part.startswith(spelled) and self.could_start(part[len(spelled) :]):
                    return True
        return False

    def schema(self, name: str) -> Mapping[str, Any]:
        """The JSON Schema of the arguments of the tool that `name` means; {} where unknown."""
        found = self.resolve(name)
        schema = self.schemas.get(found) if found is not None else None
        return schema if isinstance(schema, Mapping) else {}

    def properties(self, name: str) -> Mapping[str, Any]:
        """The `properties` of that schema; {} where there are none."""
        properties = self.schema(name).get("properties")
        return properties if isinstance(properties, Mapping) else {}

    def takes(self, name: str, keys: Collection[str]) -> bool:
        """Whether arguments of these keys are some of the tool's, and all that it needs."""
        required = self.schema(name).get("required")
        needed = set(required) if isinstance(required, list) else set()
        given = set(keys)
        return needed <= given <= self.properties(name).keys()

    def _loose_names(self) -> dict[str, str | None]:
        if self._loose is None:
            loose: dict[str, str | None] = {}
            for name in self.schemas:
                key = squash(name)
                # Two tools that differ only in spelling: neither is meant by a third spelling.
                loose[key] = None if key in loose else name
            self._loose = loose
        return self._loose


class Source:
    """The text of a reply and the tools of its request, with searches that stay linear in all."""

    __slots__ = ("_found", "budget", "text", "tools")

    def __init__(self, text: str, tools: SpelledTools) -> None:
        self.text = text
        self.tools = tools
        self.budget = READING_BUDGET
        self._found: dict[str, tuple[int, int]] = {}

    def find(self, needle: str, start: int) -> int:
        """Like `text.find`; remembers the last answer, so a missing closer is looked for once."""
        known = self._found.get(needle)
        if known is not None:
            since, at = known
            if since <= start and (at < 0 or start <= at):
                return at
        at = self.text.find(needle, start)
        self._found[needle] = (start, at)
        return at

    def find_first(self, needles: tuple[str, ...], start: int) -> int:
        """The lowest index of any of `needles`, or the length of the text where there is none."""
        hits = [at for at in (self.find(needle, start) for needle in needles) if at >= 0]
        return min(hits) if hits else len(self.text)

    def spend(self, characters: int) -> None:
        """Count characters that a reading looked at in vain. Raises Exhausted at the limit."""
        self.budget -= characters
        if self.budget < 0:
            raise Exhausted


class Begins(enum.Enum):
    """Whether a call begins here, judged by the text that has come so far."""

    NO = "no"
    MAYBE = "maybe"
    YES = "yes"


class Where(enum.Enum):
    """Where in a reply a format's opener counts."""

    SPECIAL = "special"  # tokens that nobody writes by chance: anywhere outside quotes and code
    TAG = "tag"  # tags that an explanation may show: also not behind "for example:"
    LINE = "line"  # only at the start of a line
    JSON = "json"  # a bare JSON value: also not inside another value
    ELEMENT = "element"  # an element named as a tool: at the start of a line, without any marker
    FENCE = "fence"  # the opening line of a code fence


Reader = Callable[[Source, int], Block | None]
Follow = Callable[[str, int, SpelledTools], Begins]


@frozen
class Format:
    """One row of the table.

    `name` is the label for metrics. A call of this format begins with one of `openers`. `read`
    gets the index of the opener and returns the block, or None where it is no call; it may raise
    whatever it likes. `follow` judges early, by the text after the opener (its index is given),
    whether a call can begin: NO must hold for every longer text too.
    """

    name: str
    openers: tuple[str, ...]
    read: Reader
    where: Where = Where.SPECIAL
    follow: Follow | None = None
