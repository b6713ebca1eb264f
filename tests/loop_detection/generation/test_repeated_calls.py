"""The same call again and again in one reply: native, and in every format of text."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mlx_stack_proxy.engine.attempt import Attempt
from mlx_stack_proxy.engine.exchange import Exchange
from mlx_stack_proxy.engine.verdicts import Cut, LoopDetected, Verdict
from mlx_stack_proxy.loop_detection.generation import calls as repeated_calls
from mlx_stack_proxy.loop_detection.generation.flow import Flow
from mlx_stack_proxy.loop_detection.generation.limits import Excess
from mlx_stack_proxy.loop_detection.generation.reply_watch import ReplyWatch
from mlx_stack_proxy.settings import DEFAULT_TIERS, GenerationSettings, Settings
from mlx_stack_proxy.stages import build
from mlx_stack_proxy.tool_validation.text_calls import Rescued, rescue_cut
from mlx_stack_proxy.tool_validation.tools import ToolSet
from mlx_stack_proxy.wire.reply import Reply as Gathered
from mlx_stack_proxy.wire.sse import DONE_FRAME
from tests.engine.exchanges import attempt, client_request, completion_of, exchange
from tests.support.deltas import text_delta, watched
from tests.support.replies import chunk, completion, data, usage_chunk
from tests.tool_validation.calls import parameters, tool

Json = dict[str, Any]
TOOLS = [tool(name, parameters("query", query="string", id="integer")) for name in ("look", "wait")]
A, B, C = ({"query": word} for word in ("quokka", "numbat", "bilby"))
ROLE = chunk({"role": "assistant", "content": None})


class Reply:
    """A reply that comes chunk by chunk, until the stages end it."""

    def __init__(self, chunks: list[Json], *, stream: bool = True, **rules: Any) -> None:
        body = {"tools": rules.pop("tools", TOOLS), "n": rules.pop("n", None)}
        body["parallel_tool_calls"] = rules.pop("parallel", None)
        self.exchange: Exchange = exchange(client_request(stream=stream, **body))
        settings = Settings(tiers=DEFAULT_TIERS, reliability=rules)
        self.attempt: Attempt = attempt(self.exchange, stages=build(settings))
        assert self.attempt.on_request() is None
        out = b""
        self.taken = 0
        for payload in [*chunks, usage_chunk()]:
            out += self.attempt.feed(data(payload))
            self.taken += 1
            if self.attempt.over:
                break
        else:
            out += self.attempt.feed(DONE_FRAME)
        self.ended_by: Verdict | None = self.attempt.verdict
        assert self.ended_by is None or isinstance(self.ended_by, Cut), self.ended_by
        self.verdict = self.attempt.settle()
        whole = (
            completion_of(out + self.attempt.rest(), n=body["n"])
            if stream
            else self.attempt.completion()
        )
        self.finishes = [choice["finish_reason"] for choice in whole["choices"]]
        messages = [choice["message"] for choice in whole["choices"]]
        self.text = "".join(message["content"] or "" for message in messages)
        made = [one for message in messages for one in message.get("tool_calls") or ()]
        functions = [one["function"] for one in made]
        self.calls = [(one["name"], json.loads(one["arguments"])) for one in functions]
        self.ids = [one["id"] for one in made]

    @property
    def was_cut(self) -> bool:
        remarks = self.attempt.remarks()
        noted = remarks.reply_notes.get("Truncated") == "repeated_tool_calls"
        assert noted == ("truncated" in [one.kind for one in remarks.incidents])
        assert not noted or remarks.reply_notes["Loop"].startswith("warning;detector=")
        return noted


def native(*calls: tuple[str, Any], size: int = 0, finish: bool = True) -> list[Json]:
    """Calls as `tool_calls` deltas; arguments in pieces of this size, or whole."""
    chunks = [ROLE]
    for index, (name, arguments) in enumerate(calls):
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        head = {"index": index, "id": f"call_{index}", "type": "function"}
        if not size:
            one = {**head, "function": {"name": name, "arguments": text}}
            chunks.append(chunk({"tool_calls": [one]}))
            continue
        one = {**head, "function": {"name": name, "arguments": ""}}
        chunks.append(chunk({"tool_calls": [one]}))
        for at in range(0, len(text), size):
            piece = {"index": index, "function": {"arguments": text[at : at + size]}}
            chunks.append(chunk({"tool_calls": [piece]}))
    return [*chunks, chunk({}, "tool_calls")] if finish else chunks


@pytest.mark.parametrize("size", [0, 1, 5])
@pytest.mark.parametrize("stream", [True, False])
def test_nine_equal_calls_with_other_ids(size: int, stream: bool) -> None:
    """LM Studio#1756."""
    chunks = native(*[("look", A)] * 9, size=size)
    reply = Reply(chunks, stream=stream)
    assert reply.calls == [("look", A)] * 2
    assert reply.finishes == ["tool_calls"]
    assert len(set(reply.ids)) == 2
    assert reply.was_cut
    assert isinstance(reply.ended_by, Cut)
    assert reply.taken == 2 + 3 * (len(chunks) - 2) // 9, "cut as the fourth one begins"


SPELT = ['{"query": "quokka", "id": 1}', '{"id":1,"query":"quokka"}']
IN_RESPONSE: Json = {"loop_detection": {"in_response": {"max_repeats": 4}}}


@pytest.mark.parametrize(
    ("made", "delivered", "rules"),
    [
        ([("look", SPELT[n % 2]) for n in range(6)], 2, {}),
        ([("look", A), ("look", B)] * 4, 4, {}),
        ([("look", A), ("look", B), ("look", C), ("look", A)], 4, {}),
        ([("look", A), ("look", A), ("look", {**A, "id": 7})], 3, {}),
        ([*[("look", A)] * 3, ("look", B)], 2, {}),  # half a call after the cut is none
        ([("wait", A)] * 5, 5, {}),
        ([("look", A)] * 9, 4, IN_RESPONSE),
        ([("look", A)] * 9, 9, {"loop_detection": {"enabled": False}}),
        ([("look", A)] * 9, 2, {"loop_detection": {"generation": {"enabled": False}}}),
    ],
)
@pytest.mark.parametrize("size", [0, 1, 7])
def test_how_many_are_delivered(
    made: list[tuple[str, Any]], delivered: int, rules: Json, size: int
) -> None:
    reply = Reply(native(*made, size=size), **rules)
    told = [(name, json.loads(a) if isinstance(a, str) else a) for name, a in made]
    assert reply.calls == told[:delivered]
    assert reply.was_cut is isinstance(reply.ended_by, Cut) is (delivered < len(made))


def test_a_whole_json_reply_keeps_its_usage() -> None:
    function = {"name": "look", "arguments": json.dumps(A)}
    calls = [{"id": f"c{at}", "type": "function", "function": function} for at in range(9)]
    whole = exchange(client_request(stream=False, tools=TOOLS))
    one = attempt(whole, stages=build(Settings(tiers=DEFAULT_TIERS)), hold_whole=True)
    assert one.on_request() is None
    one.take_completion(completion({"content": None, "tool_calls": calls}, "tool_calls"))
    assert one.settle() is None
    reply = one.completion()
    assert len(reply["choices"][0]["message"]["tool_calls"]) == 2
    assert reply["choices"][0]["finish_reason"] == "tool_calls"
    assert reply["usage"]["completion_tokens"] == 4


@pytest.mark.parametrize("stream", [True, False])
def test_a_choice_that_has_but_its_role_is_ended_honestly(stream: bool) -> None:
    calls = native(*[("look", A)] * 4, finish=False)
    reply = Reply([chunk({"role": "assistant"}, index=1), *calls], stream=stream, n=2)
    assert sorted(reply.finishes) == ["length", "tool_calls"]


# Calls as text

WRITTEN = {
    "hermes": '<tool_call>\n{"name": "look", "arguments": %s}\n</tool_call>\n',
    "qwen_xml": (
        "<tool_call>\n<function=look>\n<parameter=query>\n%s\n</parameter>\n</function>\n"
        "</tool_call>\n"
    ),
    "lm_studio": '[TOOL_REQUEST]{"name": "look", "arguments": %s}[END_TOOL_REQUEST]\n',
    "harmony": ("<|channel|>commentary to=functions.look <|constrain|>json<|message|>%s<|call|>"),
    "bare_json": '{"name": "look", "arguments": %s}\n',
    "react": "Action: look\nAction Input: %s\n",
    "fenced": '```json\n{"name": "look", "arguments": %s}\n```\n',
    "llama": "<function=look>%s</function>\n",
    "granite": '<|tool_call|>[{"name": "look", "arguments": %s}]\n',
    "calling": "[Calling tool: look(%s)]\n",
}
IN_ONE_BLOCK = {
    "mistral": ("[TOOL_CALLS] [", '{"name": "look", "arguments": %s}, ', "]"),
    "pythonic": ("[", "look(query=%s), ", "]"),
    "kimi": (
        "<|tool_calls_section_begin|>",
        "<|tool_call_begin|>functions.look:0<|tool_call_argument_begin|>%s<|tool_call_end|>",
        "<|tool_calls_section_end|>",
    ),
}


def written(form: str, *arguments: Json, size: int = 6) -> list[Json]:
    before, one, after = IN_ONE_BLOCK.get(form) or ("", WRITTEN[form], "")
    given = (a["query"] if form == "qwen_xml" else json.dumps(a) for a in arguments)
    if form == "pythonic":
        given = (json.dumps(a["query"]) for a in arguments)
    text = before + "".join(one % a for a in given) + after
    parts = [text[at : at + size] for at in range(0, len(text), size)]
    return [ROLE, *(chunk({"content": part}) for part in parts), chunk({}, "stop")]


FORMS = [*WRITTEN, *IN_ONE_BLOCK]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("stream", "size"), [(True, 6), (False, 6), (True, 10_000)])
def test_calls_as_text_are_cut_and_made_real(form: str, stream: bool, size: int) -> None:
    chunks = written(form, *[A] * 12, size=size)
    reply = Reply(chunks, stream=stream)
    assert reply.calls == [("look", A)] * 2
    assert reply.text.strip() == ""
    assert reply.finishes == ["tool_calls"]
    assert reply.was_cut
    assert isinstance(reply.ended_by, Cut)
    assert size > 6 or reply.taken < len(chunks) * 0.55, "generation is cut soon after the third"


@pytest.mark.parametrize("form", FORMS)
def test_of_calls_as_text_the_first_goes_out_where_one_is_allowed(form: str) -> None:
    reply = Reply(written(form, *[A] * 12), parallel=False)
    assert reply.calls == [("look", A)]
    assert reply.text.strip() == ""
    assert reply.finishes == ["tool_calls"]
    assert isinstance(reply.ended_by, Cut)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", [6, 10_000])
def test_calls_as_text_with_other_arguments_are_all_delivered(form: str, size: int) -> None:
    reply = Reply(written(form, A, B, C, A, size=size))
    assert [call for _, call in reply.calls] == [A, B, C, A]
    assert not reply.was_cut
    assert reply.ended_by is None


def test_a_text_that_goes_round_is_read_for_calls_a_few_times_in_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = 0

    def counted(text: str, tools: Any) -> Rescued:
        nonlocal read
        read += len(text)
        return rescue_cut(text, tools)

    monkeypatch.setattr(repeated_calls, "rescue_cut", counted)
    tools = ToolSet({"look": parameters("query", query="string", id="integer")})
    watch = repeated_calls.WrittenCalls(2, (), tools)
    text = "```\n" + "".join(f"look at {at} look at it look\n" for at in range(3000))
    for at in range(0, len(text), 64):
        assert watch.look(text, at + 64, 9, None) is None
    assert 0 < read <= 6 * len(text)


def test_equal_calls_that_nobody_reads_are_a_text_that_goes_round() -> None:
    text = '[TOOL_REQUEST]{"name": "x", "arguments": {"a": 1}}[END_TOOL_REQUEST]\n' * 40
    flow = Flow(GenerationSettings(), calls=repeated_calls.WrittenCalls(2, (), ToolSet({})))
    assert isinstance(flow.look(text), Excess)


def test_a_call_spoken_of_is_none() -> None:
    call = '<tool_call>{"name": "look", "arguments": {"query": "a"}}</tool_call>'
    text = (
        f"Models write it so: `{call}`. Or in code:\n```\n{call}\n{call}\n{call}\n```\nThat is all."
    )
    parts = [chunk({"content": text[at : at + 9]}) for at in range(0, len(text), 9)]
    for tools in ([], TOOLS):
        reply = Reply([ROLE, *parts, chunk({}, "stop")], tools=tools)
        assert reply.text == text
        assert not reply.was_cut


ROWS = "".join(f"<tr><td>{'x' * 90}</td></tr>\n" for _ in range(40))  # 4.5 KB
PAGE = json.dumps({"path": "a.html", "content": f"<table>\n{ROWS}</table>"})
WRITE = [{"type": "function", "function": {"name": "write_file", "parameters": {}}}]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('<tool_call>{"name": "write_file", "arguments": ', "}</tool_call>"),
        ('[TOOL_CALLS][{"name": "write_file", "arguments": ', "}]"),
        ("<function=write_file><parameter=content>", "</parameter></function>"),
    ],
)
def test_what_is_written_into_a_call_is_arguments(before: str, after: str) -> None:
    """A page of 40 equal rows was cut as a text that loops after 400 characters."""

    def looked_at(text: str) -> Verdict | None:
        watch = ReplyWatch(exchange(client_request(tools=WRITE)), Settings(tiers=DEFAULT_TIERS))
        parts = (text_delta(text[at : at + 7]) for at in range(0, len(text), 7))
        return watched(watch.watch, Gathered(), parts)

    assert looked_at(before + PAGE + after) is None
    assert isinstance(looked_at(before + ROWS * 9), LoopDetected), "a file without end"
    stuck = "Let me wait for the answer. " * 80
    assert isinstance(looked_at(before + PAGE + after + stuck), LoopDetected), "prose behind it"
    assert isinstance(looked_at(stuck + before + PAGE + after), LoopDetected), "and before it"
