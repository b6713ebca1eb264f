"""What the tests of tool_validation share: tools, requests, replies, and what comes of them."""

from __future__ import annotations

import json
from typing import Any

from mlx_stack_proxy.engine.attempt import Attempt
from mlx_stack_proxy.engine.exchange import Exchange
from mlx_stack_proxy.engine.request import Controls
from mlx_stack_proxy.engine.verdicts import CallFailure, InvalidToolCall, Verdict
from mlx_stack_proxy.settings import DEFAULT_TIERS, Settings
from mlx_stack_proxy.tool_validation.stage import ToolValidation
from tests.engine.exchanges import attempt, client_request, exchange
from tests.support.replies import completion
from tests.tool_validation.calls import SEARCH, WRITE, parameters, tool

Json = dict[str, Any]
LIST = tool("list_files", parameters())
TOOLS = [SEARCH, WRITE, LIST]
GOOD = '{"query": "quokka"}'


def stage(off: frozenset[str] = frozenset(), **rules: Any) -> ToolValidation:
    given = {"tool_validation": rules}
    return ToolValidation(Settings(tiers=DEFAULT_TIERS, reliability=given), off)  # type: ignore[arg-type]


def asked(
    controls: Controls | None = None, legacy: bool = False, stream: bool = False, **body: Any
) -> Exchange:
    body.setdefault("tools", TOOLS)
    request = client_request(legacy_functions=legacy, stream=stream, **body)
    return exchange(request, controls=controls)


def call(name: str = "search", arguments: Any = GOOD, id: str | None = "call_1") -> Json:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def message(*calls: Json, text: str | None = None, finish: str | None = None) -> Json:
    said: Json = {"content": text}
    if calls:
        said["tool_calls"] = list(calls)
    return completion(said, finish or ("tool_calls" if calls else "stop"))


class Outcome:
    """A reply after the stage: its verdict, and what a client would get of it."""

    def __init__(self, whole: Exchange, one: Attempt, verdict: Verdict | None) -> None:
        self.exchange = whole
        self.verdict = verdict
        self.attempt = one

    @property
    def failures(self) -> tuple[CallFailure, ...]:
        if self.verdict is None:
            return ()
        assert isinstance(self.verdict, InvalidToolCall)
        return self.verdict.failures

    @property
    def kinds(self) -> list[str]:
        return [failure.kind for failure in self.failures]

    @property
    def doubted(self) -> bool:
        assert isinstance(self.verdict, InvalidToolCall)
        return self.verdict.doubt

    @property
    def choice(self) -> Json:
        assert self.verdict is None, self.verdict
        choice: Json = self.attempt.completion()["choices"][0]
        return choice

    @property
    def calls(self) -> list[tuple[str, Any]]:
        calls = self.choice["message"].get("tool_calls") or []
        functions = [one["function"] for one in calls]
        return [(f["name"], json.loads(f["arguments"])) for f in functions]

    @property
    def repairs(self) -> str | None:
        return self.attempt.remarks().reply_notes.get("Repairs")

    @property
    def incidents(self) -> list[tuple[str, tuple[str, ...]]]:
        return [(one.kind, one.labels) for one in self.attempt.remarks().incidents]


def judged(reply: Json, whole: Exchange | None = None, **rules: Any) -> Outcome:
    whole = whole or asked()
    one = attempt(whole, stages=[stage(**rules)], hold_whole=True)
    assert one.on_request() is None
    one.take_completion(reply)
    return Outcome(whole, one, one.settle())


def ids(outcome: Outcome) -> list[str]:
    return [one["id"] for one in outcome.choice["message"]["tool_calls"]]


UNKNOWN = '<tool_call>{"name": "delete_all", "arguments": {}}</tool_call>'
PERSON = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}
FORMATS = [
    {"type": "json_object"},
    {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}},
]
