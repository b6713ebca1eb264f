"""OpenAI's own SDK as the judge: it accumulates each stream, and warns of what it can't serialise.

Among the cases are the seven that a server of Open Responses has to pass: a text, the same
streamed, a system prompt, a call of a tool, the same streamed, an image, several turns.
"""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from openai.types.responses import Response

from tests.wire.responses.made import call, check_strictly
from tests.wire.responses.scripted_model import ScriptedModel
from tests.wire.responses.test_stream import EVERYTHING
from tests.wire.responses.test_tools import AGENTS, PATCH

HELLO = [{"content": "Hello"}, {"content": "."}]
WEATHER: Any = {
    "type": "function",
    "name": "weather",
    "description": "The weather in a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}
ASKED = [call("weather", '{"city":"Oslo"}')]


def ask(model: ScriptedModel, **body: Any) -> Response:
    found = model.client().responses.create(model="fast", **body)
    check_strictly(found)
    return found


def read_events(model: ScriptedModel, **body: Any) -> Response:
    """Each event is read strictly; the last one has the response."""
    last: Any = None
    for event in model.client().responses.create(model="fast", stream=True, **body):
        check_strictly(event)
        last = event
    assert last.type == "response.completed"
    return last.response


def stream(model: ScriptedModel, **body: Any) -> Response:
    """The SDK puts the events together; its own types for that can't be serialised strictly."""
    with model.client().responses.stream(model="fast", **body) as events:
        types = [event.type for event in events]
        found = events.get_final_response()
    assert (types[0], types[-1]) == ("response.created", "response.completed")
    return found


each_way = pytest.mark.parametrize("by", [ask, read_events, stream])


@each_way
def test_a_text(by: Any) -> None:
    found = by(ScriptedModel(HELLO), input="Say hello.")
    assert found.output_text == "Hello."
    assert (found.status, found.model, found.store) == ("completed", "fast", False)
    assert found.usage.input_tokens_details.cache_write_tokens == 0
    assert found.usage.total_tokens == 13


@each_way
def test_a_call_of_a_tool(by: Any) -> None:
    found = by(ScriptedModel(ASKED), input="How is Oslo?", tools=[WEATHER])
    (item,) = found.output
    assert (item.type, item.name, item.call_id) == ("function_call", "weather", "call_1")
    assert json.loads(item.arguments) == {"city": "Oslo"}


@each_way
def test_an_image(by: Any) -> None:
    model = ScriptedModel(HELLO)
    shown = {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,AA=="}
    content = [{"type": "input_text", "text": "What is it?"}, shown]
    by(model, input=[{"role": "user", "content": content}])
    kinds = [part["type"] for part in model.asked[0]["messages"][0]["content"]]
    assert kinds == ["text", "image_url"]


@each_way
def test_several_turns(by: Any) -> None:
    """What came is sent back as it is, the way that the SDK's manual shows."""
    model = ScriptedModel([{"reasoning_content": "Hm."}, *ASKED], HELLO)
    items: list[Any] = [{"role": "user", "content": "How is Oslo?"}]
    first = by(model, input=items, tools=[WEATHER])
    items += [item.to_dict() for item in first.output]
    items.append({"type": "function_call_output", "call_id": "call_1", "output": "Rain."})
    assert by(model, input=items, tools=[WEATHER]).output_text == "Hello."
    asked, called, gave = model.asked[1]["messages"]
    assert (asked["role"], called["reasoning_content"]) == ("user", "Hm.")
    assert called["tool_calls"][0]["id"] == gave["tool_call_id"] == "call_1"


@each_way
def test_reasoning_text_and_each_shape_of_call(by: Any) -> None:
    found = by(ScriptedModel(EVERYTHING), input="Go.", tools=[WEATHER, PATCH, AGENTS])
    thought, text, read, patch, spawn = found.output
    assert (thought.type, thought.summary, thought.content[0].text) == ("reasoning", [], "Hm.")
    assert text.content[0].text == "I look."
    assert (read.type, read.name, read.arguments) == ("function_call", "read", '{"path":"a"}')
    assert (spawn.type, spawn.name, spawn.namespace) == ("function_call", "spawn", "agents")
    assert (patch.type, patch.name) == ("custom_tool_call", "apply_patch")
    assert patch.input == "*** Begin Patch\n*** End Patch\n"
    assert [one.call_id for one in (read, patch, spawn)] == ["call_1", "call_2", "call_3"]
    assert {one.status for one in (read, patch, spawn)} == {"completed"}


def test_what_is_not_kept_here_is_refused_once() -> None:
    model = ScriptedModel()
    with pytest.raises(openai.BadRequestError) as refused:
        model.client().responses.create(model="fast", input="Hi", previous_response_id="resp_1")
    assert refused.value.code == "previous_response_not_found"


@each_way
def test_a_refusal(by: Any) -> None:
    (item,) = by(ScriptedModel([{"refusal": "No."}]), input="Hi").output
    assert item.content[0].refusal == "No."
