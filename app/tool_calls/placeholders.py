"""Values that only stand for one: `<query>`, `YOUR_API_KEY`, `TODO`, the parameter's own name."""

from __future__ import annotations

import re
from typing import Final

from app.tool_calls.names import squash, words
from app.tool_calls.vocabulary import SEARCHING

# What `<div>` may be a value of.
_OF_MARKUP: Final = frozenset({"query", "search", "selector", "element", "tag", "component"})

# What a placeholder begins with; everything else is settled by one comparison with the name.
_SUSPICIOUS: Final = re.compile(
    r"\s*(?:[<\[{…]|\.\.\.|your|insert|enter|example|dummy|placeholder|todo|tbd|fixme|string)",
    re.IGNORECASE,
)
_DOTS: Final = re.compile(r"\.{3,}|…|<\.{3}>|<…>|\[\.{3}\]|\[…\]")
_ANGLED: Final = re.compile(
    r"<\s{0,20}([\w][\w .-]{0,64}?)\s{0,20}>|\{\{?\s{0,20}([\w][\w .-]{0,64}?)\s{0,20}\}\}?"
)
_BRACKETED: Final = re.compile(
    r"\[\s*(?:insert|your|enter|add|specify|provide|fill|replace|put)\b[^\[\]]*\]", re.IGNORECASE
)
# YOUR_API_KEY, your-api-key, your_city_here; "Your Name" is a film.
_YOURS: Final = re.compile(
    r"your[_-]\w[\w-]{0,64}|(?:your|insert|enter)[ _-](?:[^\W_]{0,64}[ _-]){0,12}here",
    re.IGNORECASE,
)
_EXAMPLE: Final = re.compile(
    r"(?:example|dummy|placeholder|insert|enter)[ _-]([\w -]+)", re.IGNORECASE
)
# city_placeholder, CITY_HERE, [city]: a name with what says that it is only that. So only for what
# no code is made of: a folder may be called `[slug]`, an icon `image_placeholder`.
_MARKED_NAME: Final = re.compile(
    r"([\w-]{1,64}?)[_-](?:placeholder|here)|\[\s{0,20}([\w][\w .-]{0,64}?)\s{0,20}\]",
    re.IGNORECASE,
)
_OF_THE_WORLD: Final = frozenset({"city", "country", "location", "address", "street", "zip",
    "email", "phone", "date", "company", "product", "recipient", "destination", "origin",
    "airport", "hotel", "restaurant", "customer", "topic"})  # fmt: skip
_STAND_INS: Final = frozenset({"string", "placeholder"})
# In small letters it is a status, or an app to write; in capitals, too, it is a column's heading.
_NOTES: Final = frozenset({"TODO", "TBD", "FIXME"})
_HEADINGS: Final = frozenset({"status", "column", "label", "labels", "tag", "tags"})
_ASKING: Final = re.compile(r"(?:your|insert|enter|the|some|actual)[ _-]\w", re.IGNORECASE)
# Between angle brackets these are no tag, whatever the parameter is.
_TAGLESS: Final = frozenset(
    {"path", "query", "value", "string", "url", "file", "filename", "filepath", "api_key", "name",
     "id", "placeholder", "todo", "text_here", "city", "command"}
)  # fmt: skip


def is_placeholder(value: str, parameter: str) -> bool:
    """Whether `value` only stands for a value of `parameter`."""
    if not _SUSPICIOUS.match(value):
        return value.casefold() == parameter.casefold() or (
            len(value) < len(parameter) + 16
            and (squash(value) == squash(parameter) or _is_marked(value, parameter))
        )
    text = value.strip()
    if _DOTS.fullmatch(text) or _BRACKETED.fullmatch(text) or _YOURS.fullmatch(text):
        return True
    own = squash(parameter)
    searching = not SEARCHING.isdisjoint(words(parameter))
    if text.casefold() in _STAND_INS:
        return not searching
    if text in _NOTES:
        return not searching and _HEADINGS.isdisjoint(words(parameter))
    angled = _ANGLED.fullmatch(text)
    if angled is not None:
        inner = angled[1] or angled[2]
        tagless = not searching and inner.casefold().replace(" ", "_") in _TAGLESS
        if tagless or squash(inner) == own:
            return True
        if _ASKING.match(inner) or _is_marked(inner, parameter):
            return True
        # `<div>` is something to look for, and `{id}` a part of many templates.
        return angled[1] is not None and not searching and _OF_MARKUP.isdisjoint(words(parameter))
    example = _EXAMPLE.fullmatch(text)
    if example is not None:
        return squash(example[1]) == own or squash(example[1]) in map(squash, words(parameter))
    return squash(text) == own or _is_marked(text, parameter)


def _is_marked(value: str, parameter: str) -> bool:
    """``[city]``, ``city_here``, ``CITY_PLACEHOLDER`` for the parameter `city`, or `city_name`."""
    marked = _MARKED_NAME.fullmatch(value.strip())
    if marked is None:
        return False
    meant, own = set(words(marked[1] or marked[2])), set(words(parameter))
    if own.isdisjoint(_OF_THE_WORLD):
        return False
    # `[city]` names no location either.
    bracketed = marked[2] is not None and bool(meant) and meant <= _OF_THE_WORLD
    return bracketed or meant - {"name"} == own - {"name"}
