"""What the tests of the stage share: an exchange, what is sent, what is judged."""

from __future__ import annotations

from mlx_stack_proxy.engine.exchange import Exchange
from mlx_stack_proxy.engine.request import UpstreamRequest
from mlx_stack_proxy.engine.session_id import SessionId
from mlx_stack_proxy.engine.verdicts import LoopDetected
from mlx_stack_proxy.loop_detection.stage import LoopDetection
from mlx_stack_proxy.wire.call import Call
from mlx_stack_proxy.wire.reply import Reply
from tests.engine.exchanges import SESSION, client_request, exchange, note
from tests.loop_detection.histories import Json, calls

A = ("search", {"query": "quokka"}, "nothing found")
B = ("read_file", {"path": "notes.md"}, "# Notes")
NAMED = SessionId("x-mlx-stack-session", "1" * 32, "1" * 32)


def asked(messages: list[Json], session: SessionId | None = None, id: str = "req-1") -> Exchange:
    request = client_request(messages=list(messages))
    return exchange(request, session=session or SESSION, id=id)


def sent(stage: LoopDetection, whole: Exchange) -> list[Json]:
    """The messages as they go to the model."""
    request = UpstreamRequest("fast", dict(whole.request.body))
    state = stage.open(whole)
    state.on_request(request)
    note(whole, state.remarks)
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
    whole = whole or asked(messages)
    state = stage.open(whole)
    verdict = state.judge(reply_of(message))
    note(whole, state.remarks)
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
            choice.tool_calls.append(Call(function["name"], function["arguments"], call["id"]))
    return reply
