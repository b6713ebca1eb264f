"""What a client asks for, and what an attempt sends upstream of it.

The edge reads a body into a :class:`Request` (``client_request.py``) and adds who asks, and how
(:meth:`Request.asked_by`). From then on nothing of it changes, however many attempts it takes; each
attempt has an :class:`UpstreamRequest`, which the stages may rewrite.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..frozen import frozen, frozen_with_dict
from ..settings import Settings
from ..wire.blocks import Blocks, messages_in
from ..wire.dialect import Dialect
from ..wire.prompt_size import estimate_prompt_tokens
from .session_id import SessionId


@frozen
class Route:
    """Where an exchange may go."""

    tiers: tuple[str, ...]  # from the start on, forward only; none for a model that passes through
    model: str = ""  # LiteLLM's model group for a pass-through
    unknown_model: bool = False  # nobody lists the named model: the chain serves it
    direct: frozenset[str] = frozenset()  # cloud tiers that LiteLLM doesn't list: called directly
    # Where `policy: escalate` sends a session whose budget is used up: `downgrade_tier`, then the
    # next cheapest.
    cheaper: tuple[str, ...] = ()

    @property
    def first(self) -> str:
        """The tier asked for; or the model that passes through, which is its own tier."""
        return self.tiers[0] if self.tiers else self.model

    def is_cloud(self, tier: str, settings: Settings) -> bool:
        """Whether a call on this tier leaves the machine."""
        return tier in self.tiers and not settings.tiers[tier].local


@frozen
class Controls:
    """What the client's ``X-MLX-Stack-*`` request headers ask for."""

    tier: str | None = None
    escalation: bool = True
    cloud: bool = True
    stream: str | None = None
    bypass: frozenset[str] = frozenset()


_NOBODY = SessionId("derived", "", "")
_NOWHERE = Route(())
_NOTHING_ASKED = Controls()


@frozen_with_dict
class Request:
    """What the client asked for: in whose name, by which dialect, with which controls."""

    body: Mapping[str, Any]  # as a chat completion; never changed, attempts work on copies
    model: str  # that the client named; "" if none
    stream: bool
    include_usage: bool  # a client that streams wants a chunk with the usage
    # The client used `functions`/`function_call`: `body` has `tools` in their place, and the reply
    # is turned back on its way out.
    legacy_functions: bool = False
    size: int = 0  # bytes of the body as it came
    # Calls, by id, whose results are errors by a flag that chat completions have no place for.
    failed: frozenset[str] = frozenset()
    id: str = ""  # as in `X-MLX-Stack-Request-Id`
    session: SessionId = _NOBODY
    route: Route = _NOWHERE
    controls: Controls = _NOTHING_ASKED
    owner: str = ""  # the API key that the client sent; "" if none
    agent: str = ""  # the name under which it is counted
    started: float = 0.0  # when it came, in seconds on the event loop's clock
    patience: float | None = None  # seconds after which its client wants an end, by its `timeout`
    client_timeout: float | None = None  # seconds that its client waits for a whole reply
    dialect: Dialect | None = None  # None: chat completions
    echo: Any = None  # what the dialect's encoder wants to know of the request
    left_out: tuple[str, ...] = ()  # tools that the dialect doesn't offer to the model

    def asked_by(self, **who: Any) -> Request:
        """The same request with more fields filled in; ``who``: none that changes the body."""
        whole = object.__new__(Request)
        # With what was worked out of the body: a long history is long to go through.
        whole.__dict__ = {**self.__dict__, **who}
        return whole

    @property
    def due(self) -> float | None:
        """When the client's patience is over, on the clock of ``started``."""
        return None if self.patience is None else self.started + self.patience

    @property
    def tools(self) -> list[Any]:
        tools = self.body.get("tools")
        return tools if isinstance(tools, list) else []

    def offered(self) -> frozenset[str]:
        """The names of the tools."""
        return self._offered

    @cached_property
    def _offered(self) -> frozenset[str]:
        functions = (tool.get("function") for tool in self.tools if isinstance(tool, dict))
        names = (function.get("name") for function in functions if isinstance(function, dict))
        return frozenset(name for name in names if isinstance(name, str))

    @cached_property
    def prompt_tokens(self) -> int:
        """An estimate; asked for by many, and a long history is long to go through."""
        return estimate_prompt_tokens(self.body)

    def is_within(self, tokens: int) -> bool:
        """Whether the prompt, as estimated, has no more tokens than that."""
        # A body's bytes bound its tokens from above: most requests need no closer look.
        return self.size <= tokens or self.prompt_tokens <= tokens

    @cached_property
    def blocks(self) -> Blocks:
        """The messages, in blocks that are recognised when they come again."""
        return Blocks(messages_in(self.body) or ())

    @cached_property
    def max_tokens(self) -> int | None:
        """The client's own limit on the reply, in whichever spelling; the smaller if both."""
        found = [self.body.get(key) for key in ("max_tokens", "max_completion_tokens")]
        limits = [limit for limit in found if isinstance(limit, int)]
        return min(limits) if limits else None


@dataclass(slots=True)
class UpstreamRequest:
    """One attempt's request, which stages may rewrite."""

    tier: str
    body: dict[str, Any]  # a shallow copy of the client's
    window: int = sys.maxsize  # the most tokens that its model can have read, or written per choice
