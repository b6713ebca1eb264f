"""Messages and Responses: any body is a request or a 400; any stream is one that the SDKs take."""

from __future__ import annotations

import copy
import json
import re
import warnings
from typing import Any

import anthropic
import httpx
import httpx2
import openai
import orjson
from anthropic.types import Message, RawMessageStreamEvent
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from benchmarks.fuzz.mutations import JSON, TEXTS, cuts, damaged, few
from benchmarks.fuzz.test_sse import CONFUSED, KNOWN, SCRAPS, SETTINGS, Came, relayed
from benchmarks.records import Json
from mlx_stack_proxy import stages
from mlx_stack_proxy.engine import client_request, session_id
from mlx_stack_proxy.engine.request import Request
from mlx_stack_proxy.errors import ProxyError
from mlx_stack_proxy.wire.dialect import Context, Dialect, Encoder, Translated
from mlx_stack_proxy.wire.messages import MESSAGES
from mlx_stack_proxy.wire.responses import RESPONSES
from tests.engine.exchanges import ODD, Faults, attempt, cut, exchange
from tests.faults.clients import Client
from tests.server.test_odd_fields import MESSAGES as MESSAGES_BODY
from tests.server.test_odd_fields import RESPONSES as RESPONSES_BODY
from tests.server.test_odd_fields import places
from tests.support.deltas import Speaking
from tests.support.replies import chunk, usage_chunk

STAGES = stages.build(SETTINGS)
DIALECTS = {"messages": MESSAGES, "responses": RESPONSES}

# Any body

WHOLE = {"messages": MESSAGES_BODY, "responses": RESPONSES_BODY}
WORDS = st.sampled_from(
    ["", "text", "tool_use", "tool_result", "function", "custom", "namespace", "system", "user"]
)
ANYTHING = ODD | JSON | WORDS | st.sampled_from([2**70, 1e300, "\ud83d", {"type": []}])


@st.composite
def bodies(draw: st.DrawFn, name: str) -> Json:
    """A right one, in which something is replaced, left out or said twice."""
    body = copy.deepcopy(WHOLE[name])
    for _ in range(draw(st.integers(0, 3))):
        *path, key = draw(st.sampled_from(list(places(body))))
        at: Any = body
        for step in path:
            at = at[step]
        change = draw(st.sampled_from(["other", "other", "out", "twice"]))
        if change == "out":
            del at[key]
        elif change == "twice" and isinstance(at, list):
            at.insert(key, copy.deepcopy(at[key]))
        else:
            at[key] = copy.deepcopy(draw(ANYTHING))  # a sampled one must stay as it is
        if not body:
            break
    return body


BODIES = st.sampled_from(sorted(WHOLE)).flatmap(
    lambda name: st.tuples(
        st.just(name),
        bodies(name) | st.dictionaries(st.sampled_from(list(WHOLE[name])), ANYTHING, max_size=5),
    )
)


def read(body: Json) -> Json:
    return client_request.read(json.dumps(body).encode())


def asked(dialect: Dialect, body: Json) -> tuple[Translated, Request]:
    """What the server makes of a body. Raises `ProxyError` alone."""
    given = read(body)
    translated = dialect.to_chat(given, {})
    parsed = client_request.checked(translated.body, 1, translated.failed)
    session_id.identify({}, given, "", parsed.body["messages"], translated.session)
    return translated, parsed


@few
@given(BODIES)
def test_any_body(named: tuple[str, Json]) -> None:
    name, body = named
    dialect = DIALECTS[name]
    try:
        if name == "messages":
            assert dialect.count(read(body))["input_tokens"] >= 0
        _, parsed = asked(dialect, body)
    except ProxyError as error:
        reply = dialect.error(error, "req_1")
        assert 400 <= reply.status < 500
        assert orjson.dumps(reply.body)
        return
    faults = Faults()
    one = attempt(exchange(parsed), stages=STAGES, faults=faults)
    assert one.on_request() is None
    assert faults == []
    assert parsed.prompt_tokens >= 0
    assert one.take_content()


@few
@given(BODIES)
def test_the_same_body_is_the_same_request(named: tuple[str, Json]) -> None:
    name, body = named
    before = json.dumps(body)
    try:
        found = [json.dumps(asked(DIALECTS[name], body)[0].body) for _ in range(2)]
    except ProxyError:
        return
    assert found[0] == found[1]
    assert json.dumps(body) == before


# Any stream

ASKED = {  # without the word on streaming, which the SDKs add
    name: {
        key: value for key, value in Client("live", True, name).body().items() if key != "stream"
    }
    for name in DIALECTS
}
FAILED = ProxyError(422, "loop_detected", "It loops.", extra={"attempts": []})
now_said = b""


def served(http: Any) -> Any:
    """A client of httpx, or of httpx2, that gets what is ``now_said``."""
    headers = {"content-type": "text/event-stream"}
    answer = lambda _: http.Response(200, headers=headers, content=now_said)  # noqa: E731
    return http.Client(transport=http.MockTransport(answer))


SDK: dict[str, Any] = {"api_key": "k", "max_retries": 0}
CLAUDE = anthropic.Anthropic(base_url="http://p", http_client=served(httpx2), **SDK)
OPENAI = openai.OpenAI(base_url="http://p/v1", http_client=served(httpx), **SDK)
CLAUDE_EVENT: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)
OPENAI_EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


def payloads(data: bytes) -> list[Json]:
    """The events of a stream, each named as its data says; comments left out."""
    found = []
    for frame in data.decode().split("\n\n"):
        lines = [line for line in frame.split("\n") if line and not line.startswith(":")]
        if not lines or lines == ["data: [DONE]"]:
            continue
        name, payload = lines
        found.append(json.loads(payload.removeprefix("data: ")))
        assert name == f"event: {found[-1]['type']}"
    return found


def read_messages(data: bytes) -> Json | None:
    """What Anthropic's SDK makes of a stream; None where that ends with an error."""
    global now_said
    now_said = data
    *events, last = payloads(data)
    for event in [*events, last]:
        if event["type"] not in ("ping", "error"):  # which the SDK has no types for
            CLAUDE_EVENT.validate_python(event, strict=True)
    try:
        with CLAUDE.messages.stream(**ASKED["messages"]) as stream:
            final = stream.get_final_message()
    except anthropic.APIStatusError:
        assert last["type"] == "error"
        return None
    assert last["type"] == "message_stop"
    Message.model_validate(final.model_dump(), strict=True)
    found: Json = final.model_dump(mode="json", exclude_none=True)
    return found


def read_responses(data: bytes) -> Json | None:
    """The same for OpenAI's SDK."""
    global now_said
    now_said = data
    assert data.endswith(b"data: [DONE]\n\n")
    events = payloads(data)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    for event in events:
        read = OPENAI_EVENT.validate_python(event)
        assert json.loads(read.model_dump_json(warnings="error", exclude_unset=True)) == event
    last = events[-1]
    if last["type"] == "response.failed":
        return None
    if last["type"] == "response.completed":
        with OPENAI.responses.stream(**ASKED["responses"]) as stream:
            assert stream.get_final_response().output_text == _output_text(last["response"])
    else:
        assert last["type"] == "response.incomplete"
    found: Json = last["response"]
    return found


def _output_text(response: Json) -> str:
    parts = [part for item in response["output"] for part in item.get("content") or ()]
    return "".join(part["text"] for part in parts if part["type"] == "output_text")


READ = {"messages": read_messages, "responses": read_responses}


def through(name: str, pieces: list[bytes], *, streams: bool, hold: bool) -> tuple[Came, Encoder]:
    """A reply in the dialect, by the stages."""
    dialect = DIALECTS[name]
    translated, parsed = asked(dialect, {**ASKED[name], "stream": streams})
    whole = exchange(parsed, dialect=dialect, echo=translated.echo)
    assert whole.encoder is not None
    faults = Faults()
    one = attempt(whole, stages=STAGES, faults=faults, hold_whole=hold or not streams)
    came = relayed(one, pieces)
    assert faults == []
    return came, whole.encoder


@few
@given(
    st.sampled_from(sorted(DIALECTS)),
    damaged(CONFUSED | KNOWN, SCRAPS),
    st.booleans(),
    st.data(),
)
def test_any_stream(name: str, whole: bytes, hold: bool, data: st.DataObject) -> None:
    pieces = cut(whole, data.draw(cuts(len(whole))))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        came, encoder = through(name, pieces, streams=True, hold=hold)
        if came.verdict is not None:
            assert READ[name](came.out + encoder.error(FAILED)) is None
            return
        streamed = READ[name](came.out + came.rest)
    assert streamed is not None
    unstreamed, _ = through(name, [whole], streams=False, hold=True)
    assert unstreamed.verdict is None
    object_ = json.loads(unstreamed.rest)
    assert compared(object_) == compared(streamed)
    if name == "messages":
        Message.model_validate(object_, strict=True)
    else:
        Response.model_validate(object_).model_dump_json(warnings="error")


def compared(reply: Json) -> Any:
    """What both ways have to agree about: not the ids that calls found in a text get."""
    blocks = [
        {key: value for key, value in block.items() if not NEW_ID.fullmatch(str(value))}
        for block in reply.get("content", reply.get("output"))
    ]
    return reply.get("stop_reason"), reply.get("status"), blocks


NEW_ID = re.compile(r"(?:fc_)?(?:call_)?[0-9a-f]{24}")


@few
@given(st.sampled_from(sorted(DIALECTS)), st.lists(TEXTS, max_size=4), st.integers(0, 4))
def test_signs_of_life_anywhere(name: str, texts: list[str], at: int) -> None:
    dialect = DIALECTS[name]
    echo = asked(dialect, {**ASKED[name], "stream": True})[0].echo
    speaking = Speaking(dialect.encoder(Context("req_1", "fast", echo, lambda: 7)))
    out = b""
    for number, text in enumerate([*texts, "."]):
        out += speaking.encoder.keepalive() if number == at else b""
        out += speaking.chunk(chunk({"content": text}))
    out += speaking.chunk(chunk({}, "stop")) + speaking.chunk(usage_chunk())
    out += speaking.encoder.keepalive() if at > len(texts) else b""
    found = READ[name](out + speaking.end())
    assert found is not None
    said = found["content"][0]["text"] if name == "messages" else _output_text(found)
    assert said == "".join([*texts, "."])
