"""The most tokens that a prompt may cost, before upstream has counted it.

An estimate from its bytes is right for prose and code, and two to three times too low for digits,
hex or base64. No token of text is shorter than a byte, so that bytes bound its tokens, but four
times too high for prose. An agent's next prompt is the one before and a little more, though: what
that has cost is known, and only what is new has to be bounded.

What bytes say nothing of is a constant: what a model's template adds, and what a picture costs.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..frozen import frozen
from ..wire.blocks import dumped, messages_in

# A template's own words: 20 to 30 tokens without tools (Llama 3.1, Qwen 2.5), 150 with some.
TEMPLATE: Final = 256
# A picture or a recording: OpenAI's high detail takes up to 1,500 tokens, Qwen2.5-VL up to 16,384
# where nobody makes a picture smaller.
MEDIUM: Final = 4096
PROMPTS: Final = 4  # remembered of a session on a tier: its sub-agents take turns
SESSIONS: Final = 1000
_NO_PROMPT: Final = frozenset(
    {"model", "metadata", "user", "stream_options", "prompt_cache_key", "safety_identifier"}
)
_PARTED: Final = ("content", "output")  # what of a message may be a list of parts
_TEXT_PART: Final = frozenset({"type", "text", "cache_control"})
# What is no text; of a file's pages nobody knows how many there are, so that its bytes count.
_MEDIA: Final = frozenset(
    {"image_url", "image", "input_image", "computer_screenshot"}
    | {"input_audio", "audio", "video", "video_url"}
)


@frozen
class Measured:
    """A request's prompt. After each message: ``sizes``, bytes of all up to there; ``media``, how
    many pictures and the like; ``names``, a hash of all.

    ``rest``: all else in the request that may be part of the prompt.
    """

    sizes: Sequence[int]
    media: Sequence[int]
    names: Sequence[int]
    rest: bytes


@frozen
class _Counted:
    """A prompt that upstream has counted: of so many messages, which have this name."""

    count: int
    name: int
    rest: int  # a hash, too
    tokens: int


def measured(body: Mapping[str, Any]) -> Measured:
    """The prompt in a request for a chat completion, or in Anthropic's or the newer OpenAI form."""
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
    """Tools, schemas, instructions, and whatever else may be part of the prompt."""
    return dumped(
        {
            key: value
            for key, value in body.items()
            if isinstance(value, (str, list, dict)) and key != field and key not in _NO_PROMPT
        }
    )


def _parts(value: Any) -> tuple[bytes, tuple[int, ...]]:
    """A message's text, and hashes of its pictures and the like.

    A client may mark now this message for a cache and now that one, and write a text as a string
    or as a list of one: that is the same prompt.
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
    return _parts(part)  # a tool's result has parts of its own


class PromptCosts:
    """Of all tiers and sessions."""

    def __init__(self) -> None:
        self._prompts: OrderedDict[tuple[str, str], deque[_Counted]] = OrderedDict()

    def take(self, tier: str, session: str, prompt: Measured, tokens: int) -> None:
        """Upstream has counted a prompt."""
        if tokens <= 0 or not prompt.names:
            return
        prompts = self._prompts.pop((tier, session), None) or deque(maxlen=PROMPTS)
        prompts.append(_Counted(len(prompt.names), prompt.names[-1], hash(prompt.rest), tokens))
        self._prompts[tier, session] = prompts
        while len(self._prompts) > SESSIONS:
            self._prompts.popitem(last=False)

    def most(self, tier: str, session: str, prompt: Measured) -> int:
        """The most tokens that a prompt may cost."""
        size, media = _whole(prompt)
        most = size + MEDIUM * media + TEMPLATE
        for counted in self._prompts.get((tier, session), ()):
            at = counted.count - 1
            if not at < len(prompt.names) or prompt.names[at] != counted.name:
                continue
            if hash(prompt.rest) == counted.rest:  # else there are other tools, say
                size = prompt.sizes[-1] - prompt.sizes[at]
                media = prompt.media[-1] - prompt.media[at]
                most = min(most, counted.tokens + size + MEDIUM * media)
        return most


def _whole(prompt: Measured) -> tuple[int, int]:
    """Bytes of a prompt, and how many pictures and the like it has."""
    if not prompt.sizes:
        return len(prompt.rest), 0
    return prompt.sizes[-1] + len(prompt.rest), prompt.media[-1]
