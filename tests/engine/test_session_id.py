"""Which session a request belongs to: every source, in the order of precedence."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlx_stack_proxy.engine.session_id import SessionId, digest, identify
from mlx_stack_proxy.wire.blocks import messages_in

Json = dict[str, Any]
MESSAGES = [{"role": "system", "content": "You code."}, {"role": "user", "content": "Fix it."}]
SHORTER = {"role": "user", "content": "ix it."}
CODEX = {"user-agent": "codex_cli_rs/0.44 (Linux)"}
# Any client's own header of this shape.
ANY_VALUE = "abc-DEF_12.:9"

HEADERS: list[tuple[str, str]] = [
    ("x-mlx-stack-session", "my run"),
    ("x-litellm-session-id", "s"),
    ("x-litellm-trace-id", "t"),
    ("x-opencode-session-id", ANY_VALUE),
    ("x-session-id", "a"),
    ("x-session-affinity", "b"),
    ("x-task-id", "c"),
    ("x-roo-task-id", "d"),
    ("x-openwebui-chat-id", "e"),
    ("x-conversation-id", "f"),
    ("helicone-session-id", "g"),
    ("session-id", "h"),
    ("session_id", "i"),
    ("thread-id", "j"),
    ("conversation_id", "k"),
]
BODY: list[tuple[str, str, Json]] = [
    ("litellm_session_id", "l", {"litellm_session_id": "l"}),
    ("metadata.session_id", "m", {"metadata": {"session_id": "m"}}),
    ("metadata.user_id", "n", {"metadata": {"user_id": "user_1_account__session_n"}}),
    ("metadata.user_id", "o", {"metadata": {"user_id": '{"user": 1, "session_id": "o"}'}}),
]


def identified(headers: Json | None = None, body: Json | None = None, owner: str = "") -> SessionId:
    whole = {"messages": MESSAGES, **(body or {})}
    return identify(headers or {}, whole, owner, messages_in(whole) or ())


@pytest.mark.parametrize(("name", "value"), HEADERS)
def test_every_header(name: str, value: str) -> None:
    found = identified({**CODEX, name: value})
    assert found == SessionId(name, digest("", value), digest("", value))
    assert not found.derived


@pytest.mark.parametrize("upper", range(len(HEADERS)))
def test_the_order_of_the_headers(upper: int) -> None:
    # Those of lower rank come first in the request, as if its order could matter.
    given = {**CODEX, **dict(reversed(HEADERS[upper:]))}
    body = {key: value for _, _, part in BODY for key, value in part.items()}
    assert identified(given, body).source == HEADERS[upper][0]


@pytest.mark.parametrize(("source", "value", "body"), BODY)
def test_every_field_of_the_body(source: str, value: str, body: Json) -> None:
    assert identified(body=body) == SessionId(source, digest("", value), digest("", value))


def test_the_order_of_the_fields() -> None:
    everything: Json = {
        "litellm_session_id": "l",
        "metadata": {"session_id": "m", "user_id": "u_session_n"},
        "prompt_cache_key": "p",
    }
    seen = []
    for drop in ("litellm_session_id", "session_id", "user_id", "prompt_cache_key", ""):
        seen.append(identified(body=everything).source)
        everything.pop(drop, None)
        everything["metadata"].pop(drop, None)
    names = ["litellm_session_id", "metadata.session_id", "metadata.user_id"]
    assert seen == [*names, "prompt_cache_key", "derived"]


OF_CODEX = ("session-id", "session_id", "thread-id", "conversation_id")
WRONG_SHAPES = ("", "short-7", "x" * 129, "with space", "ünïcode-8", "a/b/c/d/e", "line\nbreak8")


@pytest.mark.parametrize(
    "headers",
    [
        *({name: "x" * 8} for name in OF_CODEX),
        *({name: "x" * 8, "user-agent": "OpenAI/Python"} for name in OF_CODEX),
        *({"x-any-session-id": value} for value in WRONG_SHAPES),
        {"x-task-id": "   "},
        {"x-parent-session-id": "parent-123"},
    ],
    ids=str,
)
def test_headers_that_name_no_session(headers: Json) -> None:
    """Codex's names count for Codex only; a foreign header needs a value of its shape."""
    found = identified(headers)
    assert found.derived and found.budget_hash == found.hash


@pytest.mark.parametrize("value", ["x" * 8, "x" * 128])
def test_a_foreign_header_takes_a_value_of_just_this_length(value: str) -> None:
    assert identified({"x-any-session-id": value}).hash == digest("", value)


@pytest.mark.parametrize("value", ["", "   "])
def test_an_empty_value_is_passed_over(value: str) -> None:
    headers = {"x-mlx-stack-session": value, "x-litellm-session-id": value, "x-task-id": "t"}
    assert identified(headers).source == "x-task-id"


def test_a_value_is_trimmed_and_bounded() -> None:
    assert identified({"x-task-id": " t "}).hash == digest("", "t")
    assert identified({"x-task-id": "t" * 9000}).hash == digest("", "t" * 512)


@pytest.mark.parametrize(
    "body",
    [
        {"litellm_session_id": 7},
        {"metadata": "m"},
        {"metadata": {"session_id": None, "user_id": ["x"]}},
        {"metadata": {"user_id": "alice"}},
        {"metadata": {"user_id": "{broken"}},
        {"metadata": {"user_id": "[1]"}},
        {"metadata": {"user_id": '{"session_id": 7}'}},
        {"metadata": {"user_id": "session_"}},
        {"prompt_cache_key": 7},
        {"prompt_cache_key": ""},
    ],
)
def test_fields_that_name_none(body: Json) -> None:
    assert identified(body=body) == identified()


# Derived


def test_derived_from_the_key_the_system_prompt_and_the_first_user_message() -> None:
    first = identified()
    later = [*MESSAGES, {"role": "assistant", "content": "Done."}, {"role": "user", "content": "?"}]
    assert first.derived and identified(body={"messages": later}) == first
    others = [
        identified(body={"messages": [MESSAGES[0], {"role": "user", "content": "Else."}]}),
        identified(body={"messages": [{"role": "system", "content": "You sing."}, MESSAGES[1]]}),
        identified(body={"messages": [{"role": "system", "content": "You code.F"}, SHORTER]}),
        identified(body={"messages": MESSAGES[1:]}),
        identified({"authorization": "Bearer one"}),
        identified({"authorization": "Bearer two"}),
    ]
    assert len({first.hash, *(other.hash for other in others)}) == 7


@pytest.mark.parametrize("name", ["authorization", "x-api-key", "api-key"])
def test_derived_sessions_of_different_keys_are_apart(name: str) -> None:
    body = {"messages": [{"role": "user", "content": "Hi"}]}
    one, two = (identified({name: f"key-{n}"}, body) for n in "12")
    assert one.derived and two.derived
    assert len({one.hash, two.hash, identified({}, body).hash}) == 3


def test_a_cache_key_is_joined_with_what_is_derived() -> None:
    one = identified(body={"prompt_cache_key": "k"})
    other = identified(
        body={"prompt_cache_key": "k", "messages": [{"role": "user", "content": "Else."}]}
    )
    assert one.source == other.source == "prompt_cache_key"
    assert len({one.hash, other.hash, identified().hash, digest("", "k")}) == 4


# Parents and owners


def test_a_parents_budget_counts_for_its_child() -> None:
    headers = {"x-any-session-id": "child-123", "x-parent-session-id": "parent-123"}
    found = identified(headers)
    assert found.hash == digest("", "child-123")
    assert found.budget_hash == digest("", "parent-123")


@pytest.mark.parametrize(
    ("name", "parent"),
    [
        *(("x-any-session-id", wrong) for wrong in ("", "short", "with space", "x" * 129)),
        ("x-mlx-stack-session", "parent-123"),
    ],
)
def test_a_parent_of_the_wrong_shape_or_of_our_own_header_is_none(name: str, parent: str) -> None:
    found = identified({name: "child-123", "x-parent-session-id": parent})
    assert not found.derived and found.budget_hash == found.hash


@pytest.mark.parametrize("headers", [{}, {"x-task-id": "t"}, {"x-any-session-id": ANY_VALUE}])
def test_each_owner_has_its_own_sessions(headers: Json) -> None:
    parent = {"x-parent-session-id": "parent-123"}
    found = [identified({**headers, **parent}, owner=owner) for owner in ("", "one", "two")]
    assert len({one.hash for one in found}) == 3
    assert len({one.budget_hash for one in found}) == 3


def test_the_header_for_the_client_shows_no_name() -> None:
    found = identified({"x-task-id": "secret-name"})
    assert found.header == f"x-task-id;{found.hash[:12]}"
    assert len(found.hash) == 32


VALUES = st.none() | st.integers() | st.text() | st.lists(st.text(), max_size=2)


@given(
    st.dictionaries(st.sampled_from([name for name, _ in HEADERS] + ["user-agent"]), st.text()),
    st.dictionaries(
        st.sampled_from(["messages", "metadata", "prompt_cache_key", "litellm_session_id"]),
        VALUES | st.dictionaries(st.sampled_from(["user_id", "session_id"]), VALUES),
    ),
)
def test_no_request_raises(headers: Json, body: Json) -> None:
    found = identified(headers, body, "")
    assert len(found.hash) == len(found.budget_hash) == 32
    json.dumps(found.header)


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("Today is 2026-11-22.", "Today is 2026-11-23."),
        ("Now: 2026-11-22T03:04:05Z", "Now: 2026-12-01T23:59:59.123+02:00"),
        ("It is 3:04 pm.", "It is 11:59:01 PM."),
        ("Date: Sunday, November 22, 2026", "Date: Monday, November 23, 2026"),
        ("Date: 22 Nov 2026", "Date: 3 December 2026"),
        ("Run 1b4e28ba-2fa1-11d2-883f-0016d3cca427", "Run 6fa459ea-ee8a-3ca4-894e-db77e160355e"),
        ("Work in /tmp/agent-x1/src", "Work in /tmp/agent-q9"),
        ("Work in /var/folders/ab/cd/T/x", "Work in /private/tmp/y"),
        ("Work in /dev/shm/a", "Work in /run/user/1000/b"),
        (r"In C:\Users\me\AppData\Local\Temp\a1\b", r"In D:\temp\c"),
        ("run1b4e28ba-2fa1-11d2-883f-0016d3cca427", "run6fa459ea-ee8a-3ca4-894e-db77e160355e"),
        ("Run 1b4e28ba2fa111d2883f0016d3cca427", "Run 6fa459eaee8a3ca4894edb77e160355e"),
        ("Now 1780000000", "Now 1790000000.25"),
        ("Now 1780000000123", "Now 1790000000456789"),
        ("Mon Nov 23 00:24:28 2026", "Fri Dec  4 10:04:08 2026"),
        ("Mon Nov 23 00:24:28 UTC 2026", "Fri Dec  4 10:04:08 CEST 2026"),
        ("Mon, 23 Nov 2026 14:05:00 +0100", "Fri, 4 Dec 2026 04:05:09 GMT"),
        ("2026-11-23 14:05:00,123 started", "2026-12-04 04:05:00,9 started"),
        ("log-20261123T140500Z.txt", "log-20261204_040509.txt"),
        ("It is 11-23-2026, Monday 14:05.", "It is 12-4-2026, Friday 4:05."),
        ("On 23-Nov-2026", "On 4. December 2026"),
        ("On Monday, November 23rd 2026", "On Friday, 4th December, 2026"),
        ("At 3 PM", "At 11 a.m."),
    ],
)
def test_what_changes_from_run_to_run_makes_no_other_session(one: str, two: str) -> None:
    first, second = (
        identified({}, {"messages": [{"role": "system", "content": t}]}, "") for t in (one, two)
    )
    assert first.hash == second.hash


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("Fix issue 12.", "Fix issue 13."),
        ("Work in /home/a", "Work in /home/b"),
        ("Version 1.2.3", "Version 1.2.4"),
        ("Call 0170 1234567.", "Call 0170 1234568."),
        ("Order 8874449", "Order 8874448"),
        (f"At commit {'3f9aa01c77' * 4}", f"At commit {'8b9c0d1e2f' * 4}"),
        ("May I ask 3 of 10?", "May I ask 4 of 10?"),
        ("You may code.", "You must code."),
    ],
)
def test_what_is_another_task_does(one: str, two: str) -> None:
    first, second = (
        identified({}, {"messages": [{"role": "user", "content": t}]}, "") for t in (one, two)
    )
    assert first.hash != second.hash


def test_a_long_user_id_names_no_session() -> None:
    fits = "u" * 4_000 + "_session_n"
    assert identified(body={"metadata": {"user_id": fits}}).source == "metadata.user_id"
    for long in ("u" * 4_096 + "_session_n", json.dumps({"session_id": "o", "x": "y" * 4_096})):
        assert identified(body={"metadata": {"user_id": long}}).derived


@pytest.mark.parametrize(
    ("user_id", "name"),
    [("a_session_b_session_c", "b_session_c"), ("x y_session_b", "b"), ("a_session_b c", "")],
)
def test_a_user_id_ends_with_its_session(user_id: str, name: str) -> None:
    found = identified(body={"metadata": {"user_id": user_id}})
    assert found.hash == digest("", name) if name else found.derived


def test_only_the_beginning_of_a_long_text_is_searched() -> None:
    def derived(text: str) -> str:
        return identified(body={"messages": [{"role": "user", "content": text}]}).hash

    today, tomorrow = "It is 2026-11-25.", "It is 2026-11-26."
    long = "x" * 64_000
    assert derived(today + long) == derived(tomorrow + long)
    assert derived(long + today) != derived(long + tomorrow)
