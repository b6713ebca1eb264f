"""Reads Harmony (gpt-oss): ``<|channel|>commentary to=functions.name<|message|>{…}<|call|>``.

A message with ``to=`` is a call. Others are reasoning (the analysis channel) or content.
"""

from __future__ import annotations

import re

from ...wire.call import Call
from ..tools import ToolSet
from .base import (
    MAX_CALLS,
    Block,
    Format,
    Source,
    Where,
    begins_reply,
    json_object,
    marked,
    one_of,
    skip_space,
)
from .json_calls import object_text, read_json

START = "<|start|>"
CHANNEL = "<|channel|>"
MESSAGE = "<|message|>"

NAMELESS = "commentary"  # the name of a call that names no tool
_CLOSERS = r"<\|(?:end|call|return)\|>"
_ENDS = re.compile(_CLOSERS + r"|<\|(?:start|channel)\|>")
_TO = re.compile(r"\bto=([^\s<]+)")
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")
_CLOSER = re.compile(r"\s*" + _CLOSERS)
_HEADER = 400  # characters that the header before `<|message|>` may have


def follow(text: str, pos: int, tools: ToolSet) -> bool:
    """Whether a message may begin."""
    index = skip_space(text, pos)
    if text.startswith("assistant", index):
        index = skip_space(text, index + len("assistant"))
    return one_of(
        text, index, ("analysis", "commentary", "final", "assistant", "to=", "<|channel|>", " ")
    )


def follow_headless(text: str, pos: int, tools: ToolSet) -> bool:
    """Whether a message begins the reply whose header the server removed; not one of Glimmer's."""
    return begins_reply(text, pos - len(MESSAGE)) and not text.startswith("<atem:", pos)


def read(src: Source, start: int) -> Block | None:
    """Read all messages from here to the end of the reply.

    The texts of the final channel and of commentary without ``to=`` become the block's text; the
    analysis is dropped. A commentary that is an object is a call without its tool's name. Without
    any call, the last text remains, to be searched itself.
    """
    calls: list[Call] = []
    texts: list[str] = []
    end = start
    last = start  # where the last text begins, or the last reasoning ends
    for _ in range(4 * MAX_CALLS):
        index = skip_space(src.text, end)
        message = src.text.find(MESSAGE, index, index + _HEADER)
        begun = index == start and begins_reply(src.text, start, src.floor)
        if message < 0 or not (begun or src.text.startswith((START, CHANNEL), index)):
            break
        header = src.text[index:message]
        body = message + len(MESSAGE)
        to, channel = _TO.search(header), _CHANNEL.search(header)
        stop = src.find_stop(_ENDS, body)
        said = src.text[body:stop].strip()
        lost = json_object(said) if channel and channel[1] == "commentary" else None
        thinks = channel is not None and channel[1] == "analysis"
        if to is not None:
            arguments, stop = object_text(src, body, _ENDS)
            calls.append(Call(to.group(1), arguments))
        elif lost is not None:
            calls.append(Call(src.tools.tool_accepting(lost) or NAMELESS, said))
        elif (channel is not None and not thinks) or not header:
            texts.append(said)
        closer = _CLOSER.match(src.text, stop)
        end = closer.end() if closer else stop
        last = end if thinks else body
    if calls:
        return Block(end, tuple(calls), "\n\n".join(texts))
    if end == start or not begins_reply(src.text, start, src.floor):
        src.spend(end - start)
        return None
    return Block(last, (), "".join(f"{text}\n\n" for text in texts[:-1]), cleaned=True)


# A reply may begin in the middle of its header, because the prompt ends with the speaker's role,
# and some servers remove the tokens.
_GLUED = "assistantcommentary to=functions."
_BARE = marked(
    "harmony",
    ("to=functions.", "commentary to=functions."),
    r"(?:assistant)?(?:commentary )?to=functions\.(?P<name>[\w.-]++)\s*+"
    r"(?:<\|channel\|>\w++\s*+)?(?:<\|constrain\|>\s*+)?(?:json|code)?\s*+(?:<\|message\|>\s*+)?(?=\{)",
    read_json,
    _CLOSERS,
    stop=r"<\|(?:start|channel)\|>",
    where=Where.LINE,
    follow=None,
)


def _read_glued(src: Source, start: int) -> Block | None:
    """Read a header that follows reasoning without a separator, or that begins the reply."""
    is_glued = start > src.floor and not src.text[start - 1].isspace()
    return _BARE.read(src, start) if is_glued or begins_reply(src.text, start, src.floor) else None


FORMATS = (
    Format("harmony", (CHANNEL, START), read, follow=follow, cleans=True),
    Format("harmony", (MESSAGE,), read, follow=follow_headless, cleans=True),
    _BARE,
    Format("harmony", (_GLUED,), _read_glued),
)
