"""The most tokens that a prompt may cost, before upstream has counted it.

An estimate from its bytes is right for prose and code, and two to three times too low for digits,
hex or base64. No token of text is shorter than a byte, so that bytes bound its tokens, but four
times too high for prose. An agent's next prompt is the one before and a little more, though: what
that has cost is known, and only what is new has to be bounded.

What bytes say nothing of is learnt: what a model's template adds, and what a picture costs.

Pure; times are seconds of one clock, passed in.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..frozen import frozen
from .blocks import dumped
from .prompt_size import BYTES_PER_TOKEN

# A template's own words: 20 to 30 tokens without tools (Llama 3.1, Qwen 2.5), 150 with some.
TEMPLATE: Final = 256
# A picture, a recording or a file, as long as none was counted: Qwen2.5-VL's default is 1,280 at
# most, OpenAI's high detail takes up to 1,500; large ones can take ten times that.
MEDIUM: Final = 4096
# What was learnt is remembered for this long to twice as long: other models come.
SECONDS: Final = 1800.0
PROMPTS: Final = 4  # remembered of a session on a tier: its sub-agents take turns
SESSIONS: Final = 1000
TIERS: Final = 100
_NO_PROMPT: Final = frozenset(
    {"model", "metadata", "user", "stream_options", "prompt_cache_key", "safety_identifier"}
)
_MEDIA: Final = frozenset(
    {"image_url", "image", "input_image", "input_audio", "audio", "video", "video_url"}
    | {"file", "input_file", "document"}
)


@frozen
class Measured:
    """A request's prompt. After each message: ``sizes``, bytes of all up to there; ``media``, how
    many pictures and the like; ``names``, a hash of all.

    ``rest``: bytes of all else in the request.
    """

    sizes: Sequence[int]
    media: Sequence[int]
    names: Sequence[int]
    rest: int


@frozen
class _Counted:
    """A prompt that upstream has counted: of so many messages, which have this name."""

    count: int
    name: int
    rest: int
    tokens: int


def measured(body: Mapping[str, Any]) -> Measured:
    """The prompt in a request for a chat completion, or in Anthropic's or the newer OpenAI form."""
    field = "messages" if isinstance(body.get("messages"), list) else "input"
    messages = body.get(field)
    if not isinstance(messages, list):
        return Measured((), (), (), _rest(body, ""))
    sizes, media, names = [], [], []
    size = pictures = name = 0
    for message in messages:
        of_text, others = _parts(message)
        size += len(of_text)
        pictures += others
        name = hash((name, of_text, others))
        sizes.append(size)
        media.append(pictures)
        names.append(name)
    return Measured(sizes, media, names, _rest(body, field))


def _rest(body: Mapping[str, Any], field: str) -> int:
    """Bytes of tools, schemas, instructions, and of whatever else may be part of the prompt."""
    kinds = (str, list, dict)
    rest = {key: value for key, value in body.items() if isinstance(value, kinds)}
    return len(dumped({key: rest[key] for key in rest.keys() - _NO_PROMPT - {field}}))


def _parts(value: Any) -> tuple[bytes, int]:
    """A message without its pictures and the like, and how many it has of them."""
    content = value.get("content") if isinstance(value, dict) else None
    if not isinstance(content, list):
        return dumped(value), 0
    texts = [dumped({**value, "content": None})]
    media = 0
    for part in content:
        if isinstance(part, dict) and part.get("type") in _MEDIA:
            media += 1
            continue
        text, more = _parts(part)  # a tool's result has parts of its own
        texts.append(text)
        media += more
    return b"".join(texts), media


class _Highest:
    """The highest of what was seen lately, by tier."""

    def __init__(self) -> None:
        # The period, the highest within it, and within the one before.
        self._seen: OrderedDict[str, tuple[int, int, int]] = OrderedDict()

    def take(self, tier: str, value: int, now: float) -> None:
        newest, before = self._of(tier, int(now // SECONDS))
        self._seen[tier] = (int(now // SECONDS), max(newest, value), before)
        while len(self._seen) > TIERS:
            self._seen.popitem(last=False)

    def get(self, tier: str, now: float) -> int:
        """0: none was."""
        return max(self._of(tier, int(now // SECONDS)))

    def _of(self, tier: str, period: int) -> tuple[int, int]:
        known, newest, before = self._seen.get(tier, (period, 0, 0))
        if known == period:
            return newest, before
        # A clock that was set back is in a period like the next one.
        return 0, newest if abs(period - known) == 1 else 0


class PromptCosts:
    """Of all tiers and sessions."""

    def __init__(self) -> None:
        self._prompts: OrderedDict[tuple[str, str], deque[_Counted]] = OrderedDict()
        self._added = _Highest()  # by templates
        self._media = _Highest()  # by each picture

    def take(self, tier: str, session: str, prompt: Measured, tokens: int, now: float) -> None:
        """Upstream has counted a prompt."""
        if tokens <= 0:
            return
        size, media = _whole(prompt)
        if media:
            # What is left of it for each of them, if its text cost as little as prose does.
            self._media.take(tier, int((tokens - size / BYTES_PER_TOKEN) / media), now)
        elif tokens > size + TEMPLATE:
            self._added.take(tier, tokens - size, now)
        if not prompt.names:
            return
        prompts = self._prompts.pop((tier, session), None) or deque(maxlen=PROMPTS)
        prompts.append(_Counted(len(prompt.names), prompt.names[-1], prompt.rest, tokens))
        self._prompts[tier, session] = prompts
        while len(self._prompts) > SESSIONS:
            self._prompts.popitem(last=False)

    def most(self, tier: str, session: str, prompt: Measured, now: float) -> int:
        """The most tokens that a prompt may cost."""
        size, media = _whole(prompt)
        medium = self._media.get(tier, now) or MEDIUM
        most = size + medium * media + max(TEMPLATE, self._added.get(tier, now))
        for counted in self._prompts.get((tier, session), ()):
            at = counted.count - 1
            if not at < len(prompt.names) or prompt.names[at] != counted.name:
                continue
            if prompt.rest == counted.rest:  # else there are other tools, say
                size = prompt.sizes[-1] - prompt.sizes[at]
                media = prompt.media[-1] - prompt.media[at]
                most = min(most, counted.tokens + size + medium * media)
        return most


def _whole(prompt: Measured) -> tuple[int, int]:
    """Bytes of a prompt, and how many pictures and the like it has."""
    if not prompt.sizes:
        return prompt.rest, 0
    return prompt.sizes[-1] + prompt.rest, prompt.media[-1]
