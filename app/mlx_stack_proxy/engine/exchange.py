"""One client request until its final response, as data."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ..frozen import frozen, frozen_with_dict
from ..settings import Settings
from ..wire.blocks import Blocks, messages_in
from ..wire.dialect import Outgoing
from ..wire.prompt_size import estimate_of
from .session_id import SessionId
from .verdicts import InvalidToolCall, LoopDetected, Verdict


@frozen_with_dict
class ClientRequest:
    """What the client asked for. ``body`` is never changed; attempts work on copies of it.

    ``legacy_functions``: the client used ``functions``/``function_call``; ``body`` already has
    ``tools`` in their place, and the reply is turned back on its way out. ``size``: the bytes of
    the body as it came. ``failed``: the calls, by id, whose results are errors by a flag that chat
    completions have no place for.
    """

    body: Mapping[str, Any]
    model: str
    stream: bool
    include_usage: bool
    legacy_functions: bool = False
    size: int = 0
    failed: frozenset[str] = frozenset()

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
        return estimate_of(self.blocks, self.body.get("tools"))

    def is_within(self, tokens: int) -> bool:
        """Whether the prompt, as estimated, has no more tokens than that."""
        # A body's bytes bound its tokens from above: most requests need no closer look.
        return self.size <= tokens or self.prompt_tokens <= tokens

    @cached_property
    def blocks(self) -> Blocks:
        """The messages, known again where they came before."""
        return Blocks(messages_in(self.body) or ())

    def blocks_of(self, messages: Sequence[Any]) -> Blocks:
        """Those of an attempt's messages, which mostly are the client's own."""
        return self.blocks if messages is self.blocks.messages else Blocks(messages)

    @cached_property
    def max_tokens(self) -> int | None:
        """The client's own limit on the reply, in whichever spelling; the smaller if both."""
        found = [self.body.get(key) for key in ("max_tokens", "max_completion_tokens")]
        limits = [limit for limit in found if isinstance(limit, int)]
        return min(limits) if limits else None


@frozen
class Route:
    """Where an exchange may go.

    ``tiers``: the tiers from the start on, forward only; empty for a model that passes through.
    ``model``: LiteLLM's model group for a pass-through. ``unknown_model``: the client named a model
    that nobody lists, and gets the chain instead. ``direct``: the cloud tiers among them that
    LiteLLM doesn't list, and ``cloud_fallback`` reaches. ``cheaper``: where ``policy: escalate``
    sends a session whose budget is used up, ``downgrade_tier`` before the next cheapest.
    """

    tiers: tuple[str, ...]
    model: str = ""
    unknown_model: bool = False
    direct: frozenset[str] = frozenset()
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


@dataclass(slots=True)
class Request:
    """One attempt's request, which stages may rewrite: ``body`` is its own shallow copy.

    ``window``: the most tokens that its model can have read, or written in one choice.
    """

    tier: str
    body: dict[str, Any]
    window: int = sys.maxsize


@frozen
class AttemptRecord:
    """How one upstream call ended. ``reason`` None: its reply was delivered.

    ``refused``: no connection could be made. ``doubt``: the reply may be right, and was asked for
    once more. ``silent``: seconds until its first byte. ``calls``: the tools that it called.
    """

    tier: str
    reason: str | None
    status: int | None
    seconds: float
    refused: bool = False
    doubt: bool = False
    silent: float = 0.0
    tokens_in: int = 0
    tokens_out: int = 0
    calls: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return {
            "tier": self.tier,
            "reason": self.reason,
            "status": self.status,
            "seconds": round(self.seconds, 3),
        }


@dataclass(slots=True)
class Committed:
    """What has reached the client of a reply that streams, over all attempts.

    ``identity``: the first attempt's ``id`` and ``created``, which later ones take on. ``other``:
    something of a refusal, audio or an image has.
    """

    text: str = ""
    identity: dict[str, Any] = field(default_factory=dict)
    other: bool = False

    @property
    def stays(self) -> bool:
        """Whether the client has what no further attempt can take back, as it can reasoning."""
        return self.other or bool(self.text)


# What is kept for the post-mortem; docs/observability.md says when, and what each tells.
EVENT_KINDS = (
    "loop_warning",
    "loop_break",
    "tool_call_invalid",
    "tool_call_repaired",
    "escalated",
    "exhausted",
    "tier_degraded",
    "tier_recovered",
    "budget_warning",
    "budget_exceeded",
    "pressure_changed",
    "recovered",
    "client_left",
    "upstream_down",
    "upstream_up",
    "config_reloaded",
    "config_refused",
    "started",
    "stopped",
)


@frozen
class Incident:
    """Something a stage did or found, for the counters and the events.

    ``kind``: an event's name. ``labels``: bounded words for the counter.
    """

    kind: str
    labels: tuple[str, ...]
    detail: Mapping[str, Any] = field(default_factory=dict)


@frozen
class Inquiry:
    """What a stage wants a model to be asked: beside the exchange, once that is over.

    ``tier``: who is asked. ``body``: the request, without its ``model``. ``take``: is given the
    answer's text, None where none came, and says whether it is one that can be read.
    """

    tier: str
    body: Mapping[str, Any]
    take: Callable[[str | None], bool]


@frozen
class Began:
    """When a session began. ``stored``: the store has it; else it would begin now."""

    time: float
    stored: bool


@dataclass(slots=True)
class Exchange:
    """The state of one exchange. ``started`` is in seconds on the clock the shell uses.

    - ``notes``: what the response headers (docs/http.md) say beyond the ones always there, by their
      name without the prefix, e.g. ``{"Budget-Warning": "83%"}``; ``reply_notes`` likewise, of the
      attempt that runs or was delivered.
    - ``committed``: None until content has gone out. ``text_retried``: another attempt followed
      after text had.
    - ``retried``: same-tier retries so far on this tier, by reason; ``retries``: of all tiers.
    - ``model_failure``: the last one that a model itself made, on the tier ``failed_on``.
    - ``doubted``: a reply is kept that may go out if no other is better; ``doubt_is_out``: the
      text that has gone out is its own.
    - ``hint``: what every further attempt on this tier is told. ``in_result``: the tier takes no
      user message behind a tool result, so that words of ours go into that.
    - ``owner``: the API key that the client sent; "" if none.
    - ``client_timeout``: seconds that the client said it waits for a reply it doesn't stream.
    - ``patience``: seconds after which the client wants an end, by its own ``timeout``.
    - ``escalated_from``: the first tier that was left for another; "" if none was. ``climbed``: a
      tier failed in a way that it may again, so the session's next turns better start higher.
    - ``capped``: cloud tiers that the hour's cap has no more tokens for.
    - ``spent``: tiers whose own budget is used up, so that another is to take the exchange.
    - ``inquiry``: what a stage wants a model to be asked after it.
    - ``window``: the session's last turns as the store has them; ``turn``: this one, for the store.
    - ``began``: when its session did, by the store; None: that could not be asked.
    - ``outgoing``: the reply in the client's own dialect; None for chat completions.
    - ``agent``: the name under which it is counted. ``settled``: the incidents that were counted,
      each with its tier. ``queued``: the waits for a tier's place, in seconds, and whether it came.
      ``counted``: what the hour's counters have of this exchange, by tier; ``counted_as``: of
      which outcome.
    """

    id: str
    request: ClientRequest
    controls: Controls
    session: SessionId
    route: Route
    started: float
    attempts: list[AttemptRecord] = field(default_factory=list)
    notes: dict[str, str] = field(default_factory=dict)
    reply_notes: dict[str, str] = field(default_factory=dict)
    tier: str = ""
    retries: int = 0
    committed: Committed | None = None
    headers_sent: bool = False
    incidents: list[Incident] = field(default_factory=list)
    model_failure: Verdict | None = None
    failed_on: str = ""
    doubted: bool = False
    doubt_is_out: bool = False
    text_retried: bool = False
    last_response: dict[str, Any] | None = None
    retried: dict[str, int] = field(default_factory=dict)
    window: tuple[bytes, ...] = ()
    turn: bytes = b""
    began: Began | None = None
    hint: str = ""
    in_result: bool = False
    owner: str = ""
    client_timeout: float | None = None
    patience: float | None = None
    escalated_from: str = ""
    climbed: bool = False
    spent: frozenset[str] = frozenset()
    capped: frozenset[str] = frozenset()
    inquiry: Inquiry | None = None
    outgoing: Outgoing | None = None
    agent: str = ""
    settled: list[tuple[str, Incident]] = field(default_factory=list)
    queued: list[tuple[str, float, bool]] = field(default_factory=list)
    counted: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    counted_as: str = ""

    @property
    def text_is_out(self) -> bool:
        """Whether the client has something of a reply that stays with it."""
        return self.committed is not None and self.committed.stays

    @property
    def due(self) -> float | None:
        """When the client's patience is over, on the clock of ``started``."""
        return None if self.patience is None else self.started + self.patience

    @property
    def asked_about(self) -> LoopDetected | InvalidToolCall | None:
        """The doubt about which the tier of now is asked for a second opinion, if it is."""
        failure = self.model_failure
        if failure is None:  # nearly always
            return None
        match failure:
            case LoopDetected(doubt=True) | InvalidToolCall(doubt=True):
                return failure
        return None

    @property
    def hold_whole(self) -> bool:
        """Whether nothing may go out before the whole reply is accepted."""
        body = self.request.body
        return (
            self.controls.stream == "buffered"
            or self.asked_about is not None
            or (body.get("n") or 1) != 1
            or bool(body.get("response_format"))
        )
