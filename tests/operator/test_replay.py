"""`mlx-stack-proxy replay`: recorded exchanges through the stages, without a model."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import to_builtins

from mlx_stack_proxy import tool_validation
from mlx_stack_proxy.driver.rules import GO_ON
from mlx_stack_proxy.operator.replay import Replay, _failure
from mlx_stack_proxy.settings import DEFAULT_TIERS, Settings
from tests.operator.conftest import Ran, Typed
from tests.support.replies import KINDS, chunk, completion, stream_bytes, text_chunks
from tests.tool_validation.calls import SEARCH

Json = dict[str, Any]
REQUEST = {
    "model": "fast",
    "messages": [{"role": "user", "content": "Find it."}],
    "tools": [SEARCH],
}


def called(arguments: str, name: str = "search") -> Json:
    function = {"name": name, "arguments": arguments}
    said = [{"id": "call_1", "type": "function", "function": function}]
    return completion({"content": None, "tool_calls": said}, "tool_calls")


GOOD, COMMA, BAD = called('{"query": "x"}'), called('{"query": "x",}'), called('{"limit": 5}')
TEXT = completion(
    {"content": '<tool_call>{"name": "search", "arguments": {"query": "x"}}</tool_call>'}
)


def settings(**rules: Any) -> Settings:
    return Settings(tiers=DEFAULT_TIERS, reliability={"tool_validation": rules})  # type: ignore[arg-type]


def replayed(*records: Any, **rules: Any) -> list[Json]:
    source = [r if isinstance(r, bytes) else json.dumps(r).encode() for r in records]
    return [to_builtins(one) for one in Replay(settings(**rules)).lines(source)]


def record(reply: Json, **more: Any) -> Json:
    return {"request": REQUEST, "reply": reply, **more}


def test_what_each_reply_comes_to() -> None:
    more = record(GOOD, time=1.5, request_id="req_7", tier="standard", verdicts=[{}])
    good, comma, text, bad = replayed(more, *map(record, (COMMA, TEXT, BAD)))
    assert (good["line"], good["action"], good["reply"]) == (1, "delivered", GOOD)
    assert good["request_id"] == "req_7"
    assert (comma["action"], comma["repairs"]) == ("repaired", ("trailing_comma",))
    assert (text["action"], text["formats"]) == ("rescued", ("hermes_json",))
    calls = text["reply"]["choices"][0]["message"]["tool_calls"]
    assert calls[0]["function"]["name"] == "search"
    assert (bad["action"], bad["reason"]) == ("retried", "tool_validation_failure")
    assert bad["failures"][0]["kind"] == "missing_required"
    assert bad["correction"].startswith("Your previous response contained an invalid tool call.")
    assert "Find it." not in bad["correction"]
    assert "reply" not in bad


def test_chunks_and_a_raw_stream_are_replies_too() -> None:
    chunks = [chunk({"tool_calls": [{"index": 0, **_call()}]}), chunk({}, "tool_calls")]
    raw = stream_bytes(text_chunks("Hi")).decode()
    one, two = replayed(record({"chunks": chunks}), record({"stream": raw}))
    assert one["repairs"] == ("trailing_comma",)
    assert two["reply"]["choices"][0]["message"]["content"] == "Hi"


def test_a_retry_after_an_empty_reply_shows_its_hint() -> None:
    result = {"role": "tool", "tool_call_id": "call_1", "content": "Nothing found."}
    said = {**GOOD["choices"][0]["message"], "role": "assistant"}
    request = {**REQUEST, "messages": [*REQUEST["messages"], said, result]}
    usage = {"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": {}}
    (one,) = replayed(
        {"request": request, "reply": {**completion({"content": ""}), "usage": usage}}
    )
    assert (one["action"], one["reason"]) == ("retried", "empty_response")
    assert one["correction"] == GO_ON


def _call() -> Json:
    call: Json = COMMA["choices"][0]["message"]["tool_calls"][0]
    return call


def test_a_stream_that_broke_off_failed() -> None:
    raw = stream_bytes(KINDS["text"].chunks).decode()
    (torn,) = replayed(record({"stream": raw[:200]}))
    assert torn["action"] == "retried"
    assert "broke off" in torn["reason"]


def test_a_death_that_only_the_tiers_other_replies_told_of() -> None:
    """LiteLLM makes up a good end; the record alone says that it was none."""
    raw = stream_bytes(text_chunks("Hello")).decode()
    message = "the model server died within its reply"
    failed = {"reason": "server_error", "message": message, "refused": False}
    (one,) = replayed(record({"stream": raw, "failed": failed}, verdict=failed))
    assert (one["action"], one.get("differs")) == ("retried", None)
    assert "died within its reply" in one["reason"]


@pytest.mark.parametrize(
    ("failed", "kind", "fault"),
    [
        ({"reason": "timeout", "client_fault": False}, "timeout", "server"),
        ({"reason": "server_error", "refused": True}, "unreachable", "server"),
        ({"reason": "server_error", "client_fault": True}, "refused", "client"),
        ({"reason": "server_error", "about_ours": True}, "refused", "ours"),
        (
            {"reason": "server_error", "about_ours": True, "client_fault": True},
            "refused",
            "client_or_ours",
        ),
        ({"reason": "timeout", "kind": "silent", "fault": "nobody"}, "silent", "nobody"),
    ],
)
def test_a_failure_is_read_as_any_release_wrote_it(failed: Json, kind: str, fault: str) -> None:
    found = _failure({"failed": {**failed, "message": "no"}})
    assert found is not None and (found.kind, found.fault) == (kind, fault)


def test_settings_decide() -> None:
    assert replayed(record(COMMA), repair="off")[0]["action"] == "retried"
    assert replayed(record(BAD), enabled=False)[0]["action"] == "delivered"
    assert replayed(record(BAD), max_retries=0)[0]["action"] == "failed"
    last = replayed(record(BAD), max_retries=0, on_exhausted="return_last")[0]
    assert (last["action"], last["reason"]) == ("delivered", "tool_validation_failure")
    assert "correction" not in replayed(record(BAD), retry_with_correction=False)[0]


def test_a_cut_call_is_said_to_be_dropped() -> None:
    cut = called('{"query": "x')
    cut["choices"][0]["finish_reason"] = "length"
    cut["choices"][0]["message"]["content"] = " ".join(f"word{n}" for n in range(60))
    whole = {"request": {**REQUEST, "max_tokens": 400}, "reply": cut}
    assert replayed(whole)[0]["reason"] == "half a call was dropped"
    assert replayed(record(cut))[0]["reason"] == "half a call was dropped"


DEEP = b'{"request": ' * 50_000


@pytest.mark.parametrize(
    ("line", "why"),
    [
        *((b, "is not valid JSON") for b in (b"{", b"\xff\xfe", b"[" * 100_000, DEEP)),
        (b"[]", "is not a JSON object"),
        (b"{}", "has no `request`"),
        ({"request": {"messages": []}}, "`messages` is empty"),
        ({"request": REQUEST}, "has no `reply`"),
        (record({}), "holds none of `choices`"),
        (record({"choices": []}), "holds none of `choices`"),
        (record({"chunks": [1]}), "not all objects"),
    ],
)
def test_a_bad_line_is_told_and_the_rest_goes_on(line: Any, why: str) -> None:
    first, bad, last = replayed(record(GOOD), line, record(GOOD))
    assert (bad["line"], bad["action"]) == (2, "unreadable")
    assert why in bad["error"]
    assert first["action"] == last["action"] == "delivered"
    assert last["line"] == 3


def test_what_the_proxy_itself_could_not_have_read() -> None:
    surrogate = json.dumps(record(GOOD)).replace('"Find it."', '"\\ud800"').encode()
    big = json.dumps(record(GOOD)).replace("1780000000", "9" * 40).encode()
    assert [one["action"] for one in replayed(surrogate, big)] == ["unreadable", "delivered"]


def test_a_fault_of_ours_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(tool_validation.mend_choice, "check_call", broken)
    (one,) = replayed(record(BAD))
    assert one["action"] == "delivered"
    assert one["faults"] == ("tool_validation: RuntimeError: a fault of ours",)


# The command


@pytest.fixture
def replay(typed: Typed) -> Callable[..., Ran]:
    """Runs it on lines of a file, with a blank line between each two."""
    typed.write("tiers: {fast: {model: fast}}\nreliability: {escalation: {chain: [fast]}}\n")

    def run(*lines: Any, words: tuple[str, ...] = ()) -> Ran:
        text = [one if isinstance(one, str) else json.dumps(one) for one in lines]
        return typed("replay", str(typed.write("\n\n".join(text), "records.jsonl")), *words)

    return run


def test_the_command(replay: Callable[..., Ran]) -> None:
    ran = replay(*map(record, (GOOD, COMMA, TEXT, BAD)))
    assert ran.code == 0
    assert ran.out == (
        "line 1  delivered: untouched\n"
        "line 3  repaired: trailing_comma\n"
        "line 5  rescued: hermes_json\n"
        "line 7  retried: tool_validation_failure\n"
        '    missing_required: missing required field "query" in function "search"\n'
        "    > Your previous response contained an invalid tool call. The error was:\n"
        '    > missing required field "query" in function "search".\n'
        "\n"
        "records: 4\n"
        "  actions: 1 delivered, 1 repaired, 1 rescued, 1 retried\n"
        "  repairs: 1 trailing_comma\n"
        "  formats: 1 hermes_json\n"
        "  failures: 1 missing_required\n"
    )


def test_as_json(replay: Callable[..., Ran]) -> None:
    ran = replay(record(COMMA), "{", words=("--json",))
    assert ran.code == 1
    one, bad, last = map(json.loads, ran.out.splitlines())
    assert one["repairs"] == ["trailing_comma"]
    assert bad["action"] == "unreadable"
    assert last["summary"]["actions"] == {"repaired": 1, "unreadable": 1}


def test_stdin(typed: Typed) -> None:
    source = io.TextIOWrapper(io.BytesIO(json.dumps(record(GOOD)).encode()))
    typed.monkeypatch.setattr("sys.stdin", source)
    ran = typed("replay", "-")
    assert (ran.code, "1 delivered" in ran.out) == (0, True)


def test_no_such_file(typed: Typed) -> None:
    ran = typed("replay", "none")
    assert (ran.code, ran.err) == (2, "replay: none: No such file or directory\n")


def test_what_was_captured_moves_no_cursor(replay: Callable[..., Ran]) -> None:
    ran = replay(record(called("{}", "sear\x1b[2Jch\nline 9  delivered: untouched")))
    assert ran.code == 0
    assert "\x1b" not in ran.out and r"sear\u001b[2Jch" in ran.out


def circling(laps: int) -> Json:
    """A request whose history calls the same so many times, with the same result."""
    call = GOOD["choices"][0]["message"]["tool_calls"][0]
    said = {"role": "assistant", "content": None, "tool_calls": [call]}
    result = {"role": "tool", "tool_call_id": call["id"], "content": "Nothing found."}
    return {**REQUEST, "messages": [*REQUEST["messages"], *[said, result] * laps]}


def test_loops_each_record_on_its_own() -> None:
    third, fourth = ({"request": circling(laps), "reply": GOOD} for laps in (2, 3))
    outcomes = replayed(third, fourth, third, third)
    assert [one["action"] for one in outcomes] == ["delivered", "retried", "delivered", "delivered"]
    assert outcomes[1]["reason"] == "loop_detected: repetition, 3x"
    assert "Stop calling search with the same arguments: 3 times" in outcomes[1]["correction"]


def test_calls_that_are_cut() -> None:
    call = GOOD["choices"][0]["message"]["tool_calls"][0]
    calls = [{**call, "id": f"call_{number}"} for number in range(9)]
    (one,) = replayed(record(completion({"content": None, "tool_calls": calls}, "tool_calls")))
    assert one["action"] == "delivered"
    assert one["reason"] == "cut: repeated_tool_calls"
    assert len(one["reply"]["choices"][0]["message"]["tool_calls"]) == 2


@pytest.mark.specification(182)
def test_a_schema_that_is_no_json_schema_is_named() -> None:
    """`jsonschema` says where; the call itself is checked as far as the schema goes."""
    wrong = {"type": "object", "properties": {"query": {"type": "strin"}, "n": {"minimum": "1"}}}
    tools = [SEARCH, {"type": "function", "function": {"name": "find", "parameters": wrong}}]
    request = {**REQUEST, "tools": tools}
    (found,) = replayed({"request": request, "reply": called('{"query": "x"}')})
    (sentence,) = found["schemas"]
    assert sentence.startswith('the schema of "find" is not a valid JSON Schema at $.properties.')
    assert "'strin' is not" in sentence or "'1' is not of type 'number'" in sentence
    assert "schemas" not in replayed(record(GOOD))[0]
