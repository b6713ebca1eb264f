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
    r"\s*(?:[<\[{…]|\$\{|\.\.\.|your|insert|enter|example|dummy|placeholder|todo|tbd|fixme|string)",
    re.IGNORECASE,
)
_DOTS: Final = re.compile(r"\.{3,}|…|<\.{3}>|<…>|\[\.{3}\]|\[…\]")
_ANGLED: Final = re.compile(r"<\s*([\w][\w .-]*?)\s*>|\{\{?\s*([\w][\w .-]*?)\s*\}\}?")
_PLAIN: Final = re.compile(r"\[\s*([\w][\w .-]*?)\s*\]|\$\{\s*([\w][\w.-]*?)\s*\}")
_BRACKETED: Final = re.compile(
    r"\[\s*(?:insert|your|enter|add|specify|provide|fill|replace|put)\b[^\[\]]*\]", re.IGNORECASE
)
# YOUR_API_KEY, your-api-key, your_city_here; "Your Name" is a film.
_YOURS: Final = re.compile(
    r"your[_-]\w[\w-]*|(?:your|insert|enter)[ _-](?:[\w-]+[ _-]){0,6}here", re.IGNORECASE
)
_EXAMPLE: Final = re.compile(
    r"(?:example|dummy|placeholder|insert|enter)[ _-]([\w -]+)", re.IGNORECASE
)
# city_placeholder, CITY_HERE: a name with what says that it is only that …
_MARKED_NAME: Final = re.compile(r"([\w-]+?)[_-](?:placeholder|here)", re.IGNORECASE)
# … but an icon or a class may be called so.
_DRAWN: Final = frozenset({"image", "img", "icon", "picture", "photo", "avatar", "logo",
    "thumbnail", "class", "style", "component", "asset"})  # fmt: skip
# What a name is dressed up with, and whose values are written in brackets themselves.
_DRESS: Final = frozenset({"here", "your", "insert", "enter", "value", "placeholder", "the",
    "actual"})  # fmt: skip
_ADDED: Final = frozenset({"name", "address", "number", "term", "terms", "file", "full"})
_WRITTEN_SO: Final = frozenset({"column", "columns", "field", "fields", "table", "schema",
    "database", "selector", "attribute", "template", "format"})  # fmt: skip
_WORDS: Final = frozenset({"todo", "tbd", "fixme"})
_STAND_INS: Final = frozenset({"string", "placeholder", *_WORDS})
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
            len(value) < len(parameter) + 16 and _names_itself(value, parameter)
        )
    text = value.strip()
    if _DOTS.fullmatch(text) or _BRACKETED.fullmatch(text) or _YOURS.fullmatch(text):
        return True
    own = squash(parameter)
    searching = not SEARCHING.isdisjoint(words(parameter))
    if text.casefold() in _STAND_INS:
        return not (searching and text.casefold() in _WORDS)
    enclosed = _in_brackets(text, parameter, searching)
    if enclosed is not None:
        return enclosed
    example = _EXAMPLE.fullmatch(text)
    if example is not None:
        return squash(example[1]) == own or squash(example[1]) in map(squash, words(parameter))
    return squash(text) == own


def _in_brackets(text: str, parameter: str, searching: bool) -> bool | None:
    """Whether `<city>`, `{city}`, `[city]` or `${city}` is a placeholder; None where it is none."""
    angled = _ANGLED.fullmatch(text)
    if angled is not None:
        inner = (angled[1] or angled[2]).replace(" ", "_")
        if inner.casefold().endswith("_here") or inner.casefold() in _TAGLESS:
            return True
        if _names_itself(inner, parameter):
            return True
        if _ASKING.match(inner) or (angled[2] and not searching and _is_own(inner, parameter)):
            return True
        # `<div>` is something to look for, and `{id}` a part of many templates.
        return angled[1] is not None and not searching and _OF_MARKUP.isdisjoint(words(parameter))
    plain = _PLAIN.fullmatch(text)
    if plain is None:
        return None
    # `[ab]` is a pattern, and ${API_KEY} is how a configuration names a secret.
    inner = plain[1] or plain[2]
    return not searching and not (plain[2] and inner.isupper()) and _is_own(inner, parameter)


def _names_itself(value: str, parameter: str) -> bool:
    """``city``, ``city_here``, ``CITY_PLACEHOLDER`` for the parameter `city`."""
    marked = _MARKED_NAME.fullmatch(value.strip())
    if marked is None:
        return squash(value) == squash(parameter)
    drawn = not _DRAWN.isdisjoint(words(parameter))
    return squash(marked[1]) == squash(parameter) and not drawn


def _is_own(inner: str, parameter: str) -> bool:
    """Whether what stands in brackets is the parameter's own name, or words of it.

    ``[city]`` for `city_name`, ``[city name here]`` for `city`; not ``[name]`` for `column_name`.
    """
    if squash(inner) == squash(parameter) or inner.casefold() == "placeholder":
        return True
    meant, own = set(words(inner)) - _DRESS, set(words(parameter))
    if meant - {"name"} and meant <= own:
        return own.isdisjoint(_WRITTEN_SO)
    return bool(own - _ADDED) and meant - _ADDED == own - _ADDED
