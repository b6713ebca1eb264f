"""The faults of a tier's server, as a scripted server plays them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.faults.clients import ANSWER, CALL, ERROR, GOOD, HALF, LAP, Client
from tests.support.messages import call_piece, called, gave, tool_call
from tests.support.replies import (
    chunk,
    data,
    html_page,
    litellm_error,
    text_chunks,
    usage_chunk,
    with_role,
)
from tests.support.running_proxy import proxy_config
from tests.support.scripted_server import (
    CLOSE,
    RESET,
    SILENCE,
    Call,
    Delay,
    Reply,
    ScriptedServer,
    WhenWhole,
)

Json = dict[str, Any]
SILENCE_SECONDS = 3.0  # the limits on silence in tests
RETRIES = 1  # max_retries_before_escalate and max_retries in these runs
ROLE, TEXT, END = (data(one) for one in text_chunks(HALF))
READ = Delay(0.3)  # a reset takes back what has not been read yet
DONE = b"data: [DONE]\n\n"
STREAM_ERROR = data({"error": {"message": "Connection error", "type": None, "code": "500"}})


# As mlx_lm.server sends it: what LiteLLM counts itself looks otherwise.
USAGE = {
    "prompt_tokens": 9,
    "completion_tokens": 4,
    "total_tokens": 13,
    "prompt_tokens_details": {"cached_tokens": 0},
}


def whole(chunks: list[Json]) -> Reply:
    """A reply with all that belongs to it."""
    return Reply.sse(*(data(one) for one in chunks), data(usage_chunk(USAGE)), DONE)


def calling(name: str, arguments: str, identifier: str = "call_1") -> Reply:
    return whole(with_role(call_piece(name, arguments, identifier), finish="tool_calls"))


def good(tools: bool) -> Reply:
    """What a tier says that is well."""
    return calling(*CALL) if tools else whole(text_chunks(*ANSWER.partition(" ")))


def looping_history() -> list[Json]:
    """The turns of an agent that has made the same call with the same result, over and over."""
    messages: list[Json] = []
    for name in ("call_0", "call_1", "call_2"):
        call = tool_call(name, "search", '{"query": "again"}')
        messages += [called(call), gave(name, "nothing")]
    return messages


@dataclass(frozen=True)
class Fault:
    """How a tier fails, every time it is asked.

    `reason`: what an attempt on it is counted as. `calls`: upstream calls it gets in an exchange
    with `RETRIES`. `live`: what a live stream comes to; the other clients always get a good reply.
    """

    name: str
    reply: Reply
    reason: str
    calls: int
    live: str = GOOD
    tools_only: bool = False
    after: Sequence[Json] = ()
    refused: bool = False  # nothing listens there

    def fits(self, client: Client) -> bool:
        return client.tools or not self.tools_only

    def expected(self, client: Client) -> str:
        return self.live if client.how == "live" else GOOD

    def calls_of(self, client: Client) -> int:
        """Upstream calls on the faulty tier."""
        return 1 if self.expected(client) == ERROR else self.calls


def tried_again(name: str, reply: Reply, **more: Any) -> Fault:
    return Fault(name, reply, "server_error", 1 + RETRIES, **more)


REFUSED = Fault("refused", Reply(), "server_error", 1 + RETRIES, refused=True)


def left_at_once(name: str, reply: Reply, reason: str = "server_error", **more: Any) -> Fault:
    return Fault(name, reply, reason, 1, **more)


COOLDOWN = "No deployments available for selected model, Try again in 5 seconds."
OVERFLOW = (
    "litellm.ContextWindowExceededError: This model's maximum context length is 4096 tokens. "
    "However, your messages resulted in 5010 tokens."
)
BAD_CALL = calling("search", '{"limit": 5}')
LOST_CALL = whole([chunk({"role": "assistant", "content": None}), chunk({}, "tool_calls")])
EMPTY = whole([chunk({"role": "assistant", "content": ""}), chunk({}, "stop")])
LAPS = LAP * 40
BABBLE = Reply.sse(
    ROLE, *(data(chunk({"content": LAPS[at : at + 29]})) for at in range(0, len(LAPS), 29)), SILENCE
)

FAULTS = [
    # Connections that end
    tried_again("reset before headers", Reply.raw(RESET)),
    tried_again("closed before headers", Reply.raw(CLOSE)),
    tried_again("reset after headers", Reply.sse(RESET)),
    tried_again("reset mid-stream, before text", Reply.sse(ROLE, RESET)),
    tried_again("reset mid-stream, after text", Reply.sse(ROLE, TEXT, READ, RESET), live=ERROR),
    tried_again("closed mid-stream, after text", Reply.sse(ROLE, TEXT, READ, CLOSE), live=ERROR),
    # Silence
    left_at_once("no headers at all", Reply.raw(SILENCE), "timeout"),
    left_at_once("headers, then no first token", Reply.sse(SILENCE), "timeout"),
    left_at_once("stall after the role", Reply.sse(ROLE, SILENCE), "timeout"),
    left_at_once("stall after text", Reply.sse(ROLE, TEXT, SILENCE), "timeout", live=ERROR),
    # Answers that are none
    tried_again("500", litellm_error(500, "litellm.InternalServerError: Connection error.")),
    tried_again("502", litellm_error(502, "bad gateway")),
    tried_again("503", litellm_error(503, "overloaded")),
    tried_again("408", litellm_error(408, "litellm.Timeout: APITimeoutError")),
    tried_again("429", litellm_error(429, "slow down", "rate_limit_error")),
    left_at_once("429, Retry-After 30", litellm_error(429, "slow down", retry_after="30")),
    tried_again("429, cooldown", litellm_error(429, COOLDOWN, "all_deployments_in_cooldown")),
    left_at_once("404, unknown model", litellm_error(404, "model not found")),
    tried_again("HTML, 502", html_page(502)),
    tried_again("HTML, 200", html_page(200)),
    tried_again("truncated JSON, 200", Reply.json(b'{"choices": [{"mess')),
    tried_again("no body, 200", Reply.json(b"")),
    tried_again("error event, before text", Reply.sse(ROLE, STREAM_ERROR)),
    tried_again("error event, after text", Reply.sse(ROLE, TEXT, STREAM_ERROR), live=ERROR),
    tried_again("error with 200", Reply.json({"error": {"message": "no", "code": 500}})),
    # Replies that are none
    Fault("empty reply", EMPTY, "empty_response", 2),
    Fault("only [DONE]", Reply.sse(DONE), "server_error", 1 + RETRIES),
    Fault("lost tool call", LOST_CALL, "tool_validation_failure", 2, tools_only=True),
    Fault("bad tool call", BAD_CALL, "tool_validation_failure", 2, tools_only=True),
    left_at_once(
        "loop across turns",
        calling("search", '{"query": "again"}'),
        "loop_detected",
        tools_only=True,
        after=looping_history(),
    ),
    left_at_once("loop while generating", BABBLE, "loop_detected"),
    left_at_once("context overflow, 400", litellm_error(400, OVERFLOW), "context_overflow"),
    left_at_once("context overflow, 500", litellm_error(500, OVERFLOW), "context_overflow"),
]


# Five long replies use a session up, and no other session feels it.
PER_SESSION = 36_000
BUDGETS = {
    "reliability.token_budget": {
        "policy": "hard_stop",
        "per_session": PER_SESSION,
        "per_hour": 1_000_000_000,
    }
}


def settings(silence: float, retries: int = RETRIES) -> Json:
    """The proxy's settings for these runs. `silence`: the limits on it, in seconds."""
    limits = dict.fromkeys(("first_token_timeout", "idle_timeout", "tool_silence_timeout"), silence)
    limits["max_concurrency"] = 32  # nobody waits in a queue
    return {
        # A window that is larger, for an overflow to go to.
        "tiers": {
            "fast": {"model": "fast", "context_window": 8192, **limits},
            "standard": {"model": "standard", "context_window": 32_768, **limits},
        },
        "reliability.escalation": {
            "chain": ["fast", "standard"],
            "max_retries_before_escalate": retries,
            "degrade": {"failures": 1000},  # the breaker has tests of its own
        },
        "reliability.tool_validation": {"max_retries": retries},
        "observability": {"log_level": "error", "log_format": "json"},
    }


def inside_settings() -> Json:
    """The same for a layer inside LiteLLM, in its file's form."""
    config = proxy_config("", {**settings(SILENCE_SECONDS), **BUDGETS})
    config.pop("upstream")
    return config


def tiers_with(fault: Fault | None, *, everywhere: bool = False) -> WhenWhole:
    """`fast` (or every tier) has the fault, the others are well."""

    def choose(call: Call) -> Reply:
        body = call.json()
        if fault is not None and (everywhere or body["model"] == "fast"):
            return fault.reply
        return good(bool(body.get("tools")))

    return WhenWhole(choose)


def with_caller(client: Client, server: ScriptedServer) -> list[str]:
    """The models of the calls that a client's request led to."""
    asked = [call.json() for call in server.calls]
    # A hint or a correction may follow in the same message.
    return [one["model"] for one in asked if client.question in one["messages"][0]["content"]]
