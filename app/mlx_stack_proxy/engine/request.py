"""The client's request, and the request that an attempt sends upstream.

The edge parses a body into a :class:`Request` (``client_request.py``) and fills in who asks and
with which controls (:meth:`Request.with_caller`). From then on the :class:`Request` is constant for
all attempts. Each attempt has an :class:`UpstreamRequest`, which the stages may rewrite.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final

from msgspec import Struct

from ..settings import Settings
from ..wire.blocks import Blocks, messages_in
from ..wire.dialect import Dialect
from ..wire.prompt_size import estimate_prompt_tokens
from .session_id import SessionId

MAX_NAME: Final = 64  # characters of a tool's or a model's name in records and events


class Route(Struct, frozen=True):
    """The tiers that an exchange may use."""

    tiers: tuple[str, ...]  # in order; empty for a model that passes through
    model: str = ""  # LiteLLM's model group for a model that passes through
    unknown_model: bool = False  # neither we nor LiteLLM list the named model: the tiers serve it
    direct: frozenset[str] = frozenset()  # cloud tiers called directly: LiteLLM doesn't list them
    # The tiers for a session whose budget is used up, under `policy: escalate`:
    # `downgrade_tier`, then the next cheapest.
    cheaper: tuple[str, ...] = ()

    @property
    def first(self) -> str:
        """The first tier; for a model that passes through, the model's name."""
        return self.tiers[0] if self.tiers else self.model

    def is_cloud(self, tier: str, settings: Settings) -> bool:
        """Whether a call on this tier leaves the machine."""
        return tier in self.tiers and not settings.tiers[tier].local


class Controls(Struct, frozen=True):
    """The client's ``X-MLX-Stack-*`` request headers (docs/http.md)."""

    tier: str | None = None  # the tier to start on
    escalation: bool = True  # whether other tiers may be asked
    cloud: bool = True  # whether cloud tiers may be asked
    stream: str | None = None  # "buffered": hold the whole reply until it is accepted
    bypass: frozenset[str] = frozenset()  # stages to leave out


_NO_SESSION = SessionId("derived", "", "")
_NO_ROUTE = Route(())
_NOTHING_ASKED = Controls()


class Request(Struct, eq=False, dict=True):
    """A client's request: its body, who asks, in which dialect, with which controls."""

    body: Mapping[str, Any]  # as a chat completion; attempts change copies only
    model: str  # the model that the client named; "" if none
    stream: bool
    include_usage: bool  # the client wants a chunk with the usage at the end of a stream
    # The client used `functions`/`function_call`. `body` has `tools` instead, and the reply is
    # translated back.
    legacy_functions: bool = False
    size: int = 0  # bytes of the original body
    # Ids of calls whose results the dialect marks as errors; chat completions have no such mark.
    failed: frozenset[str] = frozenset()
    id: str = ""  # as in `X-MLX-Stack-Request-Id`
    session: SessionId = _NO_SESSION
    route: Route = _NO_ROUTE
    controls: Controls = _NOTHING_ASKED
    owner: str = ""  # the client's API key; "" if none
    agent: str = ""  # the client program's name, under which the exchange is counted
    started: float = 0.0  # when the request arrived, in seconds on the event loop's clock
    patience: float | None = None  # seconds after which the client wants an end (its `timeout`)
    client_timeout: float | None = None  # seconds that the client waits for a complete reply
    dialect: Dialect | None = None  # None: chat completions
    echo: Any = None  # what the dialect's encoder needs to know about the request
    left_out: tuple[str, ...] = ()  # the client's tools that the dialect left out

    def with_caller(self, **fields: Any) -> Request:
        """Fill in these fields, before anything else uses the request; ``body`` must not change."""
        for name, value in fields.items():
            setattr(self, name, value)
        return self

    @property
    def due(self) -> float | None:
        """When the client's own time limit ends, on the clock of ``started``; None: never."""
        return None if self.patience is None else self.started + self.patience

    @property
    def tools(self) -> list[Any]:
        tools = self.body.get("tools")
        return tools if isinstance(tools, list) else []

    @cached_property
    def offered(self) -> frozenset[str]:
        """The names of the offered tools, cut to `MAX_NAME` as in records and events."""
        functions = (tool.get("function") for tool in self.tools if isinstance(tool, dict))
        names = (function.get("name") for function in functions if isinstance(function, dict))
        return frozenset(name[:MAX_NAME] for name in names if isinstance(name, str))

    @cached_property
    def prompt_tokens(self) -> int:
        """The prompt's estimated tokens; cached, because a long history takes time."""
        return estimate_prompt_tokens(self.body, self.blocks)

    def is_within(self, tokens: int) -> bool:
        """Whether the prompt has at most ``tokens``, by estimate."""
        # A body has at most as many tokens as bytes, so most requests need no estimate.
        return self.size <= tokens or self.prompt_tokens <= tokens

    @cached_property
    def blocks(self) -> Blocks:
        """The messages in blocks, which are recognised in later requests."""
        return Blocks(messages_in(self.body) or ())

    @cached_property
    def max_tokens(self) -> int | None:
        """The client's own limit in tokens, the smaller of both fields; None if it gave none."""
        values = [self.body.get(key) for key in ("max_tokens", "max_completion_tokens")]
        limits = [limit for limit in values if isinstance(limit, int)]
        return min(limits) if limits else None


class UpstreamRequest(Struct, eq=False):
    """The request that one attempt sends; stages may rewrite it."""

    tier: str
    body: dict[str, Any]  # a shallow copy of the client's body
    window: int = sys.maxsize  # the model's context window in tokens, which also bounds each choice
    learned_window: int = sys.maxsize  # the window in tokens by the tier's errors
    # Output tokens that fit the window, by the tier's error; None: unknown.
    most_output: int | None = None
