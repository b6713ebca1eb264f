"""The most tokens that a prompt may cost, before upstream has counted it.

The usual estimate from bytes is right for prose and code, but two to three times too low for
digits, hex or base64. Every token of text has at least one byte, so the number of bytes is an upper
bound, but four times too high for prose. An agent's next prompt, though, is its earlier prompt and
a little more. So :class:`PromptCosts` remembers what upstream counted for a session's latest
prompts, recognises one at the beginning of a new prompt, and bounds only the rest by its bytes.

Two costs can't be read from bytes and are constants here: a model's chat template, and a picture.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..frozen import frozen
from ..wire.blocks import dumped, messages_in

# Tokens of a chat template's own words: 20 to 30 without tools (Llama 3.1, Qwen 2.5), 150 with.
TEMPLATE: Final = 256
# Tokens of a picture or a recording: OpenAI's high detail takes up to 1,500, Qwen2.5-VL up to
# 16,384 if nobody makes the picture smaller.
MEDIUM: Final = 4096
PROMPTS: Final = 4  # remembered for a session on a tier, because its sub-agents take turns
SESSIONS: Final = 1000  # pairs of a tier and a session that are remembered at once
# Strings and objects of a request that are no part of the prompt.
_NO_PROMPT: Final = frozenset(
    {"model", "metadata", "user", "stream_options", "prompt_cache_key", "safety_identifier"}
)
_PARTED: Final = ("content", "output")  # fields of a message that may hold a list of parts
_TEXT_PART: Final = frozenset({"type", "text", "cache_control"})
# Types of parts that cost `MEDIUM`. A file is none of them: nobody knows how many pages it has, so
# that its bytes count.
_MEDIA: Final = frozenset(
    {"image_url", "image", "input_image", "computer_screenshot"}
    | {"input_audio", "audio", "video", "video_url"}
)


@frozen
class Measured:
    """A request's prompt: running totals after each message, and what stands beside them."""

    sizes: Sequence[int]  # bytes of text up to and with each message
    media: Sequence[int]  # pictures and recordings up to and with each message
    names: Sequence[int]  # a hash of all messages up to and with each one
    rest: bytes  # all else in the request that may be part of the prompt, as JSON


@frozen
class _Counted:
    """A prompt that upstream has counted."""

    count: int  # its messages
    name: int  # the last of its `Measured.names`, a hash of all its messages
    rest: int  # a hash of its `Measured.rest`
    tokens: int  # upstream's count


def measured(body: Mapping[str, Any]) -> Measured:
    """Measure the prompt of a chat completion, an Anthropic message or an OpenAI response."""
    field = "messages" if messages_in(body) is not None else "input"
    messages = messages_in(body, field)
    if messages is None:
        return Measured((), (), (), _rest(body, ""))
    sizes, media, names = [], [], []
    size = pictures = name = 0
    for message in messages:
        text, others = _parts(message)
        size += len(text)
        pictures += len(others)
        name = hash((name, text, others))
        sizes.append(size)
        media.append(pictures)
        names.append(name)
    return Measured(sizes, media, names, _rest(body, field))


def _rest(body: Mapping[str, Any], field: str) -> bytes:
    """Return tools, schemas, instructions, and whatever else may be part of the prompt, as JSON."""
    return dumped(
        {
            key: value
            for key, value in body.items()
            if isinstance(value, (str, list, dict)) and key != field and key not in _NO_PROMPT
        }
    )


def _parts(value: Any) -> tuple[bytes, tuple[int, ...]]:
    """Return a message's text, and a hash for each of its pictures and recordings.

    Cache marks are left out, and a text as a string equals the same text in a list of one part:
    clients may change both between requests, and the prompt stays the same.
    """
    if not isinstance(value, dict):
        return dumped(value), ()
    field = next((name for name in _PARTED if isinstance(value.get(name), (list, dict))), "content")
    rest = {key: found for key, found in value.items() if key not in (field, "cache_control")}
    content = value.get(field)
    if isinstance(content, str):
        return dumped(rest) + content.encode("utf-8", "surrogatepass"), ()
    texts, media = [dumped(rest)], list[int]()
    for part in content if isinstance(content, list) else [content]:
        text, more = _part(part)
        texts.append(text)
        media += more
    return b"".join(texts), tuple(media)


def _part(part: Any) -> tuple[bytes, tuple[int, ...]]:
    if not isinstance(part, dict):
        return dumped(part), ()
    kind, text, source = part.get("type"), part.get("text"), part.get("source")
    if isinstance(text, str) and part.keys() <= _TEXT_PART:
        return text.encode("utf-8", "surrogatepass"), ()
    written = isinstance(source, dict) and source.get("type") in ("text", "content")
    if isinstance(kind, str) and kind in _MEDIA and not written:
        return b"", (hash(dumped(part)),)
    return _parts(part)  # e.g. a tool's result, whose content is a list of parts again


class PromptCosts:
    """What upstream has counted for the latest prompts, of all tiers and sessions."""

    def __init__(self) -> None:
        self._prompts: OrderedDict[tuple[str, str], deque[_Counted]] = OrderedDict()

    def take(self, tier: str, session: str, prompt: Measured, tokens: int) -> None:
        """Remember upstream's count for a prompt; 0 or fewer ``tokens`` teach nothing."""
        if tokens <= 0 or not prompt.names:
            return
        prompts = self._prompts.pop((tier, session), None) or deque(maxlen=PROMPTS)
        prompts.append(_Counted(len(prompt.names), prompt.names[-1], hash(prompt.rest), tokens))
        self._prompts[tier, session] = prompts
        while len(self._prompts) > SESSIONS:
            self._prompts.popitem(last=False)

    def most(self, tier: str, session: str, prompt: Measured) -> int:
        """Return the most tokens that a prompt may cost on a tier."""
        size, media = _whole(prompt)
        most = size + MEDIUM * media + TEMPLATE
        for counted in self._prompts.get((tier, session), ()):
            at = counted.count - 1
            if not at < len(prompt.names) or prompt.names[at] != counted.name:
                continue
            if hash(prompt.rest) == counted.rest:  # else the tools have changed, for example
                size = prompt.sizes[-1] - prompt.sizes[at]
                media = prompt.media[-1] - prompt.media[at]
                most = min(most, counted.tokens + size + MEDIUM * media)
        return most


def _whole(prompt: Measured) -> tuple[int, int]:
    """Return a prompt's bytes, and the number of its pictures and recordings."""
    if not prompt.sizes:
        return len(prompt.rest), 0
    return prompt.sizes[-1] + len(prompt.rest), prompt.media[-1]
