"""The most tokens that a prompt may cost, before upstream has counted it.

An estimate from its bytes is right for prose and code, and two to three times too low for digits,
hex or base64. No token of text is shorter than a byte, so that bytes bound its tokens, but four
times too high for prose. An agent's next prompt is the one before and a little more, though: what
that has cost is known, and only what is new has to be bounded.

What a model's template adds is learnt from prompts that cost more than their bytes.

Pure; times are seconds of one clock, passed in.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, Final

import orjson

from ..frozen import frozen
from .blocks import dumped
from .chunks import REASONING_FIELDS
from .prompt_size import TOKENS_PER_IMAGE, bytes_of, text_bytes

# A template's own words: 20 to 30 tokens without tools (Llama 3.1, Qwen 2.5), 150 with some.
TEMPLATE: Final = 256
# A message's role and marks: 4 to 6 tokens, and as many again around a call or its result.
PER_MESSAGE: Final = 16
# What a template was seen to add is remembered for this long to twice as long.
SECONDS: Final = 1800.0
PROMPTS: Final = 4  # remembered of a session on a tier: its sub-agents take turns
SESSIONS: Final = 1000


@frozen
class Measured:
    """A request's prompt. ``sizes``: after each message, the bound of all up to there.

    ``tools``: bytes. ``only_text``: nothing is in it whose tokens bytes say nothing of.
    """

    messages: Sequence[Any]
    sizes: Sequence[int]
    tools: int
    only_text: bool

    @property
    def bound(self) -> int:
        """Tokens, with each byte taken for one."""
        return (self.sizes[-1] if self.sizes else 0) + self.tools


@frozen
class _Counted:
    """A prompt that upstream has counted. ``last``: a hash of its last message."""

    count: int
    last: int
    size: int
    tools: int
    tokens: int


def measured(body: Mapping[str, Any]) -> Measured:
    """The prompt in a request."""
    messages = body.get("messages")
    messages = messages if isinstance(messages, list) else []
    texts = [text_bytes(message) for message in messages]
    thoughts = map(_thought_bytes, messages)
    sizes = [
        PER_MESSAGE + size + thought + TOKENS_PER_IMAGE * others
        for (size, others), thought in zip(texts, thoughts, strict=True)
    ]
    tools = body.get("tools")
    return Measured(
        messages,
        list(accumulate(sizes)),
        len(orjson.dumps(tools)) if tools else 0,
        not any(others for _, others in texts),
    )


def _thought_bytes(message: Any) -> int:
    """Bytes of reasoning, which most templates leave out of a prompt, but not all."""
    if not isinstance(message, dict):
        return 0
    thoughts = (message.get(field) for field in REASONING_FIELDS)
    return sum(bytes_of(thought) for thought in thoughts if isinstance(thought, str))


class PromptCosts:
    """Of all tiers and sessions."""

    def __init__(self) -> None:
        self._prompts: OrderedDict[tuple[str, str], deque[_Counted]] = OrderedDict()
        # By tier: the period, the most that was added within it, and within the one before.
        self._added: dict[str, tuple[int, int, int]] = {}

    def take(self, tier: str, session: str, prompt: Measured, tokens: int, now: float) -> None:
        """Upstream has counted a prompt."""
        if tokens <= 0 or not prompt.sizes:
            return
        last = hash(dumped(prompt.messages[-1]))
        found = self._prompts.pop((tier, session), None)
        prompts = deque(maxlen=PROMPTS) if found is None else found
        prompts.append(_Counted(len(prompt.messages), last, prompt.sizes[-1], prompt.tools, tokens))
        self._prompts[tier, session] = prompts
        while len(self._prompts) > SESSIONS:
            self._prompts.popitem(last=False)
        if prompt.only_text and tokens > prompt.bound + TEMPLATE:
            period = int(now // SECONDS)
            newest, before = self._added_in(tier, period)
            self._added[tier] = (period, max(newest, tokens - prompt.bound), before)

    def most(self, tier: str, session: str, prompt: Measured, now: float) -> int:
        """The most tokens that a prompt may cost."""
        period = int(now // SECONDS)
        most = prompt.bound + max(TEMPLATE, *self._added_in(tier, period))
        for counted in self._prompts.get((tier, session), ()):
            if _goes_on(prompt, counted):
                most = min(most, counted.tokens + prompt.sizes[-1] - counted.size)
        return most

    def _added_in(self, tier: str, period: int) -> tuple[int, int]:
        """The most that was added in a period, and in the one before; 0: none that matters."""
        known, newest, before = self._added.get(tier, (period, 0, 0))
        if known == period:
            return newest, before
        # A clock that was set back is in a period like the next one.
        return 0, newest if abs(period - known) == 1 else 0


def _goes_on(prompt: Measured, counted: _Counted) -> bool:
    """Whether a prompt begins with all of one that was counted."""
    at = counted.count - 1
    return (
        len(prompt.messages) > at
        and (prompt.sizes[at], prompt.tools) == (counted.size, counted.tools)
        and hash(dumped(prompt.messages[at])) == counted.last
    )
