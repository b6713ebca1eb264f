"""Replies for the scripted server: what OpenAI-compatible servers send, streamed or not.

A ``Kind`` is one reply in both forms: the chunks of its stream, and the completion that the same
server would have sent unstreamed. Both are written by hand, so that a fault in the code under test
can't hide in the expected result.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.support.messages import tool_call
from tests.support.scripted_server import Piece, Reply

Json = dict[str, Any]
TOP: Json = {"id": "chatcmpl-71c0", "created": 1_780_000_000, "model": "fast"}
USAGE: Json = {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}
DONE = b"data: [DONE]\n\n"


def data(payload: Any, end: bytes = b"\n\n") -> bytes:
    text = json.dumps(payload, ensure_ascii=False) if not isinstance(payload, bytes) else payload
    return b"data: " + (text.encode() if isinstance(text, str) else text) + end


def chunk(delta: Json, finish: str | None = None, index: int = 0, **more: Any) -> Json:
    """Return a chunk with one choice; ``more``: further fields of the choice."""
    choice = {"index": index, "delta": delta, "finish_reason": finish, **more}
    return {**TOP, "object": "chat.completion.chunk", "choices": [choice]}


def usage_chunk(usage: Json | None = None) -> Json:
    return {**TOP, "object": "chat.completion.chunk", "choices": [], "usage": usage or USAGE}


def completion(message: Json, finish: str = "stop", **more: Any) -> Json:
    """Return an unstreamed reply with one choice; ``more``: further fields of the choice."""
    message = {"role": "assistant", **message}
    choice = {"index": 0, "message": message, "finish_reason": finish, **more}
    return {**TOP, "object": "chat.completion", "choices": [choice], "usage": USAGE}


def text_chunks(*texts: str, finish: str = "stop") -> list[Json]:
    return [
        chunk({"role": "assistant", "content": ""}),
        *(chunk({"content": text}) for text in texts),
        chunk({}, finish),
    ]


# The frames of a short stream, for tests that do something between them.
ROLE, TEXT, END = (data(one) for one in text_chunks("Half an answer"))


def stream_bytes(chunks: list[Json], usage: bool = True) -> bytes:
    """Return a whole stream as a server sends it, with ``[DONE]``."""
    payloads = [*chunks, usage_chunk()] if usage else chunks
    return b"".join(map(data, payloads)) + DONE


def stream(chunks: list[Json], usage: bool = True) -> Reply:
    """Return a reply that sends each chunk in a write of its own."""
    pieces: list[Piece] = [data(payload) for payload in chunks]
    if usage:
        pieces.append(data(usage_chunk()))
    return Reply.sse(*pieces, DONE)


def text_stream(*texts: str, usage: bool = True) -> Reply:
    return stream(text_chunks(*(texts or ("Hello", " there", "."))), usage)


def litellm_error(status: int, message: str, kind: str | None = None, **headers: str) -> Reply:
    """Return an error in LiteLLM's form: its code is the status, as a string."""
    error = {"message": message, "type": kind, "param": None, "code": str(status)}
    return Reply.json({"error": error}, status=status, **headers)


def long_text(characters: int, seed: int = 1) -> str:
    """Return a text without repetitions, which loop detection would cut."""
    return Random(seed).randbytes(characters // 2 + 1).hex()[:characters]


def html_page(status: int = 502) -> Reply:
    page = b"<html><head><title>Bad Gateway</title></head><body>nginx</body></html>"
    return Reply(status, (("content-type", "text/html"),), (page,))


@dataclass(frozen=True)
class Kind:
    chunks: list[Json]  # streamed
    completion: Json  # unstreamed
    request: Json | None = None  # what the client must have asked, where it matters

    def stream(self) -> Reply:
        return stream(self.chunks)


WEATHER = tool_call("call_a", "get_weather", '{"city": "Oslo"}')
TIME = tool_call("call_b", "get_time", '{"zone": "CET", "at": null}')
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "parameters": {"type": "object", "properties": {}, "additionalProperties": True},
        },
    }
    for name in ("get_weather", "get_time")
]
FUNCTIONS = [tool["function"] for tool in TOOLS]


def call_pieces() -> list[Json]:
    """Return the deltas of both calls as OpenAI sends them: a name, then pieces of arguments."""
    deltas: list[Json] = []
    for index, call in enumerate((WEATHER, TIME)):
        function = call["function"]
        head = {**call, "index": index, "function": {**function, "arguments": ""}}
        deltas.append({"tool_calls": [head]})
        arguments = function["arguments"]
        for start in range(0, len(arguments), 5):
            piece = {"index": index, "function": {"arguments": arguments[start : start + 5]}}
            deltas.append({"tool_calls": [piece]})
    return deltas


def with_role(*deltas: Json, finish: str = "stop", **more: Any) -> list[Json]:
    first = chunk({"role": "assistant", "content": None})
    return [first, *(chunk(delta, **more) for delta in deltas), chunk({}, finish)]


def _logprob(token: str) -> Json:
    top = [{"token": token, "logprob": -0.1, "bytes": list(token.encode())}]
    return {"token": token, "logprob": -0.1, "bytes": list(token.encode()), "top_logprobs": top}


LINK = {
    "type": "url_citation",
    "url_citation": {"url": "https://example.org/", "title": "E", "start_index": 0, "end_index": 2},
}

KINDS: dict[str, Kind] = {
    "text": Kind(text_chunks("Héllo", " wörld", " 🎉"), completion({"content": "Héllo wörld 🎉"})),
    "length": Kind(
        text_chunks("cut", " off", finish="length"), completion({"content": "cut off"}, "length")
    ),
    "content_filter": Kind(
        text_chunks("no", finish="content_filter"), completion({"content": "no"}, "content_filter")
    ),
    "reasoning": Kind(
        with_role({"reasoning": "Think"}, {"reasoning": " hard."}, {"content": "Done."}),
        completion({"reasoning": "Think hard.", "content": "Done."}),
    ),
    "reasoning_content": Kind(
        with_role(
            {"reasoning_content": "Think"}, {"reasoning_content": " hard."}, {"content": "Done."}
        ),
        completion({"reasoning_content": "Think hard.", "content": "Done."}),
    ),
    "reasoning_litellm": Kind(
        with_role(
            {"reasoning_content": "Th", "provider_specific_fields": {"reasoning": "Th"}},
            {"reasoning_content": "ink", "provider_specific_fields": {"reasoning": "ink"}},
            {"content": "Done."},
        ),
        completion(
            {
                "reasoning_content": "Think",
                "provider_specific_fields": {"reasoning": "Think"},
                "content": "Done.",
            }
        ),
    ),
    "think_tags": Kind(
        text_chunks("<thi", "nk>Let me", " see.</think>", "Done."),
        completion({"content": "<think>Let me see.</think>Done."}),
    ),
    "tool_call_whole": Kind(
        with_role({"tool_calls": [{"index": 0, **WEATHER}]}, finish="tool_calls"),
        completion({"content": None, "tool_calls": [WEATHER]}, "tool_calls"),
        {"tools": TOOLS},
    ),
    "tool_calls_split": Kind(
        with_role(*call_pieces(), finish="tool_calls"),
        completion({"content": None, "tool_calls": [WEATHER, TIME]}, "tool_calls"),
        {"tools": TOOLS},
    ),
    "text_and_tool_call": Kind(
        with_role(
            {"content": "Let me look."},
            {"tool_calls": [{"index": 0, **WEATHER}]},
            finish="tool_calls",
        ),
        completion({"content": "Let me look.", "tool_calls": [WEATHER]}, "tool_calls"),
        {"tools": TOOLS},
    ),
    "function_call": Kind(
        with_role(
            {"function_call": {"name": "get_weather", "arguments": ""}},
            {"function_call": {"arguments": '{"city": '}},
            {"function_call": {"arguments": '"Oslo"}'}},
            finish="function_call",
        ),
        completion({"content": None, "function_call": WEATHER["function"]}, "function_call"),
        {"functions": FUNCTIONS},
    ),
    "refusal": Kind(
        with_role({"refusal": "I can't"}, {"refusal": " do that."}),
        completion({"content": None, "refusal": "I can't do that."}),
    ),
    "annotations": Kind(
        with_role({"content": "See"}, {"content": " it"}, {"annotations": [LINK]}),
        completion({"content": "See it", "annotations": [LINK]}),
    ),
    "logprobs": Kind(
        [
            chunk({"role": "assistant", "content": ""}, logprobs=None),
            chunk({"content": "Yes"}, logprobs={"content": [_logprob("Yes")], "refusal": None}),
            chunk({"content": "!"}, logprobs={"content": [_logprob("!")], "refusal": None}),
            chunk({}, "stop", logprobs=None),
        ],
        completion(
            {"content": "Yes!"},
            logprobs={"content": [_logprob("Yes"), _logprob("!")], "refusal": None},
        ),
        {"logprobs": True, "top_logprobs": 1},
    ),
    "unknown_fields": Kind(
        [
            {**chunk({"role": "assistant", "content": "a", "mood": "so"}), "region": "north"},
            {**chunk({"content": "b", "mood": "ber"}, stop_token=7), "region": "north"},
            {**chunk({}, "stop", stop_token=7), "region": "north"},
        ],
        {**completion({"content": "ab", "mood": "sober"}, stop_token=7), "region": "north"},
    ),
    "system_fingerprint": Kind(
        [
            {**one, "system_fingerprint": "fp_1", "service_tier": "default"}
            for one in text_chunks("k")
        ],
        {**completion({"content": "k"}), "system_fingerprint": "fp_1", "service_tier": "default"},
    ),
}


def _n_two() -> Kind:
    chunks = [chunk({"role": "assistant", "content": ""}, index=index) for index in (0, 1)]
    for first, second in (("one", "uno"), (" two", " dos")):
        chunks += [chunk({"content": second}, index=1), chunk({"content": first})]
    chunks += [chunk({}, "stop", index=1), chunk({}, "length")]
    whole = completion({"content": "one two"}, "length")
    other = {"index": 1, "message": {"role": "assistant", "content": "uno dos"}}
    whole["choices"].append({**other, "finish_reason": "stop"})
    return Kind(chunks, whole, {"n": 2})


KINDS["n_two"] = _n_two()
