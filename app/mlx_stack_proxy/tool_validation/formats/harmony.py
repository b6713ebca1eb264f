"""Read Harmony (gpt-oss): ``<|channel|>commentary to=functions.name<|message|>{…}<|call|>``.

A message with ``to=`` is a call. Others are reasoning (the analysis channel) or content.
"""

from __future__ import annotations

import re

from ..tools import ToolSet
from .base import (
    MAX_CALLS,
    Block,
    Call,
    Format,
    Source,
    Where,
    begins_reply,
    in_marks,
    one_of,
    skip_space,
)
from .json_calls import object_text
from .marks import named

START = "<|start|>"
CHANNEL = "<|channel|>"
MESSAGE = "<|message|>"

_ENDS = ("<|end|>", "<|call|>", "<|return|>", START, CHANNEL)
_TO = re.compile(r"\bto=([^\s<]+)")
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")
_CLOSER = re.compile(r"\s*<\|(?:end|call|return)\|>")
_HEADER = 400  # characters that the header before `<|message|>` may have


def follow(text: str, pos: int, tools: ToolSet) -> bool:
    """Whether a message other than the final one may begin: only the final text need not wait."""
    index = skip_space(text, pos)
    if text.startswith("assistant", index):
        index = skip_space(text, index + len("assistant"))
    return one_of(text, index, ("analysis", "commentary", "assistant", "to=", "<|channel|>", " "))


def read(src: Source, start: int) -> Block | None:
    """Read all messages from here to the end of the reply.

    The texts of the final channel and of commentary without ``to=`` become the block's text; the
    analysis is dropped. If there is no call, the block is only the analysis at the beginning, so
    that the scanner skips it.
    """
    calls: list[Call] = []
    texts: list[str] = []
    end = thought = start
    for _ in range(4 * MAX_CALLS):
        index = skip_space(src.text, end)
        message = src.text.find(MESSAGE, index, index + _HEADER)
        begun = index == start and begins_reply(src.text, start, src.floor)
        if message < 0 or not (begun or src.text.startswith((START, CHANNEL), index)):
            break
        header = src.text[index:message]
        body = message + len(MESSAGE)
        to, channel = _TO.search(header), _CHANNEL.search(header)
        thinks = to is None and channel is not None and channel.group(1) == "analysis"
        if to is not None:
            arguments, stop = object_text(src, body, _ENDS)
            calls.append(Call(to.group(1), arguments))
        else:
            stop = src.find_first(_ENDS, body)
            if channel is not None and not thinks:
                texts.append(src.text[body:stop].strip())
        closer = _CLOSER.match(src.text, stop)
        previous_end, end = end, closer.end() if closer else stop
        if thinks and thought == previous_end:
            thought = end
    if calls:
        return Block(end, tuple(calls), "\n\n".join(texts))
    return Block(thought, ()) if thought > start else None


# A reply may begin in the middle of its header, for the prompt ends with the speaker's role; and
# some servers remove the tokens.
_BARE = ("to=functions.", "commentary to=functions.")
_read_bare = in_marks(
    named(
        r"(?:commentary )?to=functions\.(?P<name>[\w.-]++)\s*+(?:<\|channel\|>\w++\s*+)?"
        r"(?:<\|constrain\|>\s*+)?(?:json)?\s*+(?:<\|message\|>\s*+)?(?=\{)",
        *_ENDS,
    ),
    end=_CLOSER.pattern,
)

FORMATS = (
    Format("harmony", (CHANNEL, START), read, follow=follow),
    Format("harmony", _BARE, _read_bare, Where.LINE),
)
