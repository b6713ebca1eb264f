"""Whatever a client offers and a model writes: no fault, a verdict or a reply, a retry to send."""

from __future__ import annotations

from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from mlx_stack_proxy.engine import correction
from mlx_stack_proxy.engine.verdicts import InvalidToolCall
from tests.engine.exchanges import Faults, attempt
from tests.support.replies import chunk, stream_bytes
from tests.tool_validation.tool_replies import Json, asked, message, stage

NAMES = st.sampled_from(
    ["search", "Search", "functions.search", "write_file", "", "x" * 300, "é<|"]
)
PIECES = r"""
{ } [ ] " ' : , \ ``` query path true True null 1 -2.5e3 é 🎉 <think> </think> <tool_call>
</tool_call> <parameter=query> </parameter> </function> [TOOL_CALLS] Action: search
<function=search>
{"name":"search","arguments": {"query":"x"}
"""
PARTS = st.sampled_from([*PIECES.split(), " ", "\n", "Let me see. ", "Action Input: "])
TEXTS = st.lists(PARTS, max_size=14).map("".join)
ODD = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.sampled_from(["string", "any", "#/x", "query"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "properties", "required", "items", "enum", "$ref", "query", "anyOf"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


def offered(name: str, schema: Any) -> Json:
    return {"type": "function", "function": {"name": name, "parameters": schema}}


TOOLS = st.lists(
    st.builds(offered, NAMES, ODD) | st.just({"type": "web_search"}), min_size=0, max_size=3
)
CALLS = st.lists(
    st.fixed_dictionaries(
        {"id": st.sampled_from(["a", "b", "", None]), "type": st.just("function")},
        optional={
            "function": st.fixed_dictionaries(
                {"name": NAMES | st.none(), "arguments": TEXTS | ODD}  # some forget to encode them
            )
        },
    ),
    max_size=3,
)
BODIES = st.fixed_dictionaries(
    {"tools": TOOLS},
    optional={
        "tool_choice": st.sampled_from(["none", "auto", "required"])
        | st.builds(lambda name: {"type": "function", "function": {"name": name}}, NAMES)
        | st.just({"type": "odd"}),
        "parallel_tool_calls": st.booleans(),
        "response_format": st.builds(
            lambda kind, schema: {"type": kind, "json_schema": {"name": "n", "schema": schema}},
            st.sampled_from(["text", "json_object", "json_schema"]),
            ODD,
        ),
    },
)
FINISHES = st.sampled_from(["stop", "length", "tool_calls", "content_filter"])


@given(BODIES, CALLS, TEXTS, FINISHES)
def test_any_reply(body: Json, calls: list[Json], text: str, finish: str) -> None:
    faults = Faults()
    whole = asked(**body)
    one = attempt(whole, stages=[stage()], faults=faults, hold_whole=True)
    assert one.on_request() is None
    one.take_completion(message(*calls, text=text, finish=finish))
    verdict = one.settle()
    assert faults == []
    if verdict is None:
        orjson.dumps(one.completion())
        return
    assert isinstance(verdict, InvalidToolCall)
    assert verdict.failures
    assert all(len(failure.error) < 2000 for failure in verdict.failures)
    for with_schema in (False, True):
        messages = correction.corrected(
            whole.request.body,
            one.reply,
            verdict,
            role="user",
            placement="user",
            with_schema=with_schema,
        )
        orjson.dumps(messages)


@given(BODIES, st.lists(TEXTS, max_size=6), FINISHES)
def test_a_stream_and_the_whole_reply_come_to_the_same(
    body: Json, texts: list[str], finish: str
) -> None:
    streamed, whole = asked(stream=True, **body), asked(**body)
    faults = Faults()
    one = attempt(streamed, stages=[stage()], faults=faults, hold_whole=streamed.hold_whole)
    other = attempt(whole, stages=[stage()], faults=faults, hold_whole=True)
    deltas = [chunk({"content": text}) for text in texts]
    out = one.feed(stream_bytes([*deltas, chunk({}, finish)]))
    other.take_completion(message(text="".join(texts), finish=finish))
    first, second = one.settle(), other.settle()
    assert faults == []
    assert (first is None) == (second is None)
    if first is not None or second is not None:
        return
    said = read(out + one.rest())
    (choice,) = other.completion()["choices"]
    called = choice["message"].get("tool_calls") or []
    assert said["content"] == (choice["message"]["content"] or "")
    assert said["calls"] == [call["function"] for call in called]
    assert said["finish"] == choice["finish_reason"]


def read(stream: bytes) -> Json:
    """The content, calls and finish reason that a client makes of a stream."""
    said: Json = {"content": "", "calls": [], "finish": None}
    for frame in stream.split(b"\n\n"):
        if frame.startswith(b"data: {"):
            for choice in orjson.loads(frame[6:]).get("choices", ()):
                said["content"] += choice["delta"].get("content") or ""
                said["calls"] += [c["function"] for c in choice["delta"].get("tool_calls") or ()]
                said["finish"] = choice["finish_reason"] or said["finish"]
    return said
