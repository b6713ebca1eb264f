"""What the tests of the stage share: an exchange, what is sent, what is judged."""

from __future__ import annotations

from mlx_stack_proxy.engine.exchange import Exchange, Request
from mlx_stack_proxy.engine.session_id import SessionId
from mlx_stack_proxy.engine.verdicts import LoopDetected
from mlx_stack_proxy.loop_detection.stage import LoopDetection
from mlx_stack_proxy.wire.reply import Reply, ToolCall
from tests.core.exchanges import client_request, exchange
from tests.stages.loop_detection.histories import (
    Json,
    calls,
)

A = ("search", {"query": "quokka"}, "nothing found")
B = ("read_file", {"path": "notes.md"}, "# Notes")
NAMED = SessionId("x-mlx-stack-session", "1" * 32, "1" * 32)


def asked(messages: list[Json], session: SessionId | None = None) -> Exchange:
    whole = exchange(client_request(messages=list(messages)))
    if session is not None:
        whole.session = session
    return whole


def sent(stage: LoopDetection, whole: Exchange) -> list[Json]:
    """The messages as they go to the model."""
    request = Request("fast", dict(whole.request.body))
    stage.open(whole).on_request(request)
    messages: list[Json] = request.body["messages"]
    return messages


def hint(stage: LoopDetection, messages: list[Json], session: SessionId | None = None) -> str:
    whole = asked(messages, session)
    new = sent(stage, whole)
    assert ("Loop" in whole.notes) == (new != messages)
    assert new[: len(messages)] == messages or new[-1]["role"] == "user"
    return "" if new == messages else str(new[-1]["content"])


def judged(
    stage: LoopDetection, messages: list[Json], message: Json, whole: Exchange | None = None
) -> LoopDetected | None:
    verdict = stage.open(whole or asked(messages)).judge(reply_of(message))
    assert verdict is None or isinstance(verdict, LoopDetected)
    return verdict


def again(made: tuple[str, Json, str]) -> Json:
    return calls(made[:2])


def reply_of(*messages: Json) -> Reply:
    """A reply with these messages as its choices."""
    reply = Reply()
    for index, message in enumerate(messages):
        choice = reply.choice(index)
        choice.text = message.get("content") or ""
        for call in message.get("tool_calls") or ():
            function = call["function"]
            choice.tool_calls.append(ToolCall(call["id"], function["name"], function["arguments"]))
    return reply
