"""A call that a text plainly means, and that can't be made of it: the model has to be asked.

Either the whole text is a call as JSON, of a tool that isn't offered, though its arguments are
those of one that is, or of one that is offered, with arguments that can't be read; or it ends by
saying that a call is to be made now, arguments and all. All are close to what somebody may have
asked to be shown, so whoever asks the model once more must be ready to take the text for the
answer.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from . import explain
from .check import Failure
from .formats.base import SpelledTools, Tools
from .formats.literals import json_object
from .unread_calls import unread_call

MAX_TEXT: Final = 8_000  # characters; a longer one is an answer, whatever stands in it
MAX_SAID_BEFORE: Final = 400  # characters before an announcement; after more it sums something up
UNREAD_ASKS: Final = 80  # characters at the end in which a question is for the user
MAX_TRIED: Final = 8  # braces where the arguments may begin

_FENCE = r"```(?:json|tool_calls?|tool_use|tool|function_call)?[ \t]*\n"
_FENCED = re.compile(rf"{_FENCE}(.*)\n```", re.S)
_BEGUN = re.compile(
    rf"(?P<fence>{_FENCE}\s*)?"
    r"\{\s*\"name\"\s*:\s*\"(?P<name>[\w.-]+)\"\s*,\s*\"(?:arguments|parameters)\"\s*:\s*\{"
)
_CLOSERS = ("tool_call>", "function_call>", "function>", "tool>")
_DECODER = json.JSONDecoder()
_LIST_ITEM = re.compile(r"\s*(?:[-*•>|]|\d+[.)])\s")
_END = re.compile(r"[\s`*]{0,20}(?:\b(?:now|next|first)\b)?[\s`*.!…]{0,20}\Z", re.IGNORECASE)
_SENTENCE_END = re.compile(r"[.!](?=\s)|\n")
_ANNOUNCED = re.compile(
    r"\W{0,20}(?:(?:ok|okay|alright|sure|now|next|first|then|so)\W{1,20})*"
    r"(?:I(?:['’]ll| will| am going to|['’]m going to)|let me)\s{1,20}(?:(?:now|first|next"
    r"|then)\s{1,20})?"
    r"(?:call|use|invoke|run)\s{1,20}(?:the\s{1,20})?(?:(?:function|tool)\s{1,20})?"
    r"[`\"'*]{0,64}(?P<name>\w[\w.-]{0,64})[`\"'*]{0,64}(?:\s{1,20}(?:function|tool))?"
    r"(?:\s{1,20}(?:with|using|on))?(?:\s{1,20}(?:the|these|following|arguments?|parameters?|input))*",
    re.IGNORECASE,
)
# Words of a user who wants to hear of a call, or to be asked before it is made.
_ABOUT_CALLS = re.compile(
    r"\b(?:tools?|functions?|calls?|calling|plans?|confirm\w*|approv\w*|permission|wait|dry.run)\b",
    re.IGNORECASE,
)
# … and of one who wants data, or markup; `data.json` is a file's name.
_ABOUT_MARKUP = re.compile(
    r"(?<![\w./-])(?:xml|html|svg|jsx|tsx|json|yaml|markup|elements?|tags?|soap|rss|snippets?"
    r"|templates?|converts?|converted)\b",
    re.IGNORECASE,
)


def may_mean_call(text: str) -> bool:
    """Whether a text needs a look at all: most hold none of what every call has."""
    return "{" in text or "<" in text or "(" in text or "call:" in text or "Action Input:" in text


def missed_call(text: str, tools: Tools, asked: str) -> Failure | None:
    """The call that ``text`` means beyond reasonable doubt. ``asked``: what the user said last."""
    text = text.rpartition("</think>")[2].strip()
    if not tools or len(text) > MAX_TEXT:
        return None
    if text.endswith(_CLOSERS):  # of a call that was never opened
        text = text.rpartition("</")[0].rstrip()
    begun = _BEGUN.match(text) if text.startswith(("{", "```")) else None
    known = SpelledTools(tools)
    if begun is not None and (found := _unreadable(text, begun, known, asked)):
        return found
    if text.endswith(("}", "```", ".", "now", "!", "`")):
        found = _of_no_tool(text, known) or _announced(text, known, asked)
        if found is not None:
            return found
    return _unread(text, known, asked)


def _unread(text: str, tools: SpelledTools, asked: str) -> Failure | None:
    if "?" in text[-UNREAD_ASKS:] or _ABOUT_CALLS.search(asked) or _ABOUT_MARKUP.search(asked):
        return None
    name = unread_call(text, tools)
    if name is None:
        return None
    return Failure(
        name,
        "unread_call",
        f'you wrote a call of "{name}" as text that nothing reads; call it, or answer without it',
    )


def _unreadable(text: str, begun: re.Match[str], tools: SpelledTools, asked: str) -> Failure | None:
    name = tools.resolve(begun.group("name"))
    if name is None or _ABOUT_CALLS.search(asked):
        return None
    body = text[len(begun.group("fence") or "") :]
    if begun.group("fence"):
        body, _, behind = body.partition("```")
        if behind.strip():
            return None  # something is said about it
    if "\n\n" in body or not _is_broken(body):
        return None
    return Failure(
        name,
        "invalid_json",
        f'you wrote a call of "{name}" as text, and its arguments are not valid JSON; call it, '
        "or answer without it",
    )


def _is_broken(text: str) -> bool:
    """Whether it can't be read, not even up to where its first value ends."""
    try:
        _DECODER.raw_decode(text)
    except (ValueError, RecursionError):
        return True
    return False


def _of_no_tool(text: str, tools: SpelledTools) -> Failure | None:
    fenced = _FENCED.fullmatch(text)
    call = json_object(fenced.group(1) if fenced else text)
    if call is None or len(call) != 2 or "name" not in call:
        return None
    name, arguments = call["name"], call.get("arguments", call.get("parameters"))
    if not isinstance(name, str) or not isinstance(arguments, dict) or tools.resolve(name):
        return None
    if not arguments or not any(tools.takes(tool, arguments) for tool in tools.schemas):
        return None
    return Failure(name, "unknown_tool", explain.unknown_tool(name, list(tools.schemas)))


def _announced(text: str, tools: SpelledTools, asked: str) -> Failure | None:
    if "?" in text or "{" not in text or _ABOUT_CALLS.search(asked):
        return None
    end = _END.search(text)
    body = text[: end.start()] if end else text
    start, arguments = _last_object(body)
    if arguments is None and body.endswith("}}"):  # the end of a call that was begun in prose
        start, arguments = _last_object(body[:-1])
    lead = body[:start].rstrip(" \t\n`*:")
    begun = max((found.end() for found in _SENTENCE_END.finditer(lead)), default=0)
    line = lead[lead.rfind("\n") + 1 :]
    said = _ANNOUNCED.fullmatch(lead, begun)
    if arguments is None or said is None or begun > MAX_SAID_BEFORE or "{" in lead:
        return None
    name = tools.resolve(said.group("name"))
    if name is None or _LIST_ITEM.match(line) or not (arguments and tools.takes(name, arguments)):
        return None
    return Failure(
        name,
        "announced_call",
        f'you said that you would call "{name}" and did not; call it now, or answer without it',
    )


def _last_object(text: str) -> tuple[int, dict[str, Any] | None]:
    """The JSON object that ends the text, and where it begins."""
    start = -1
    for _ in range(MAX_TRIED):
        start = text.find("{", start + 1)
        if start < 0:
            break
        found = json_object(text[start:])
        if found is not None:
            return start, found
    return 0, None
