"""Messages as a strict chat template takes them: one system message, images from users alone."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from mlx_stack_proxy.wire.strict_template import needs_rewriting, rewritten

Json = dict[str, Any]
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
CALL = {"role": "assistant", "tool_calls": [{"id": "c1"}, {"id": "c2"}]}


def system(text: str, role: str = "system") -> Json:
    return {"role": role, "content": text}


def user(content: Any) -> Json:
    return {"role": "user", "content": content}


def result(call: str, content: Any) -> Json:
    return {"role": "tool", "tool_call_id": call, "content": content}


def marked(text: str) -> str:
    return f"<system-reminder>\n{text}\n</system-reminder>"


SHOWN = "[an image: see the message after this]"


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        # A later system message is the user's text, where it stands.
        (
            [system("Rules."), user("Hi."), system("Lint failed."), user("Go on.")],
            [system("Rules."), user("Hi."), user(f"{marked('Lint failed.')}\n\nGo on.")],
        ),
        (
            [user("Hi."), system("Be brief."), CALL],
            [user(f"Hi.\n\n{marked('Be brief.')}"), CALL],
        ),
        ([user("Hi."), system("Late.", "developer")], [user(f"Hi.\n\n{marked('Late.')}")]),
        # At the head they become one.
        ([system("One."), system("Two."), user("Hi.")], [system("One.\n\nTwo."), user("Hi.")]),
        # Nothing comes between a call and its results.
        (
            [CALL, result("c1", "ok"), system("Hook."), result("c2", "ok")],
            [CALL, result("c1", "ok"), result("c2", "ok"), user(marked("Hook."))],
        ),
        # An image of a result follows the results.
        (
            [CALL, result("c1", [{"type": "text", "text": "seen"}, IMAGE]), result("c2", "ok")],
            [CALL, result("c1", f"seen\n\n{SHOWN}"), result("c2", "ok"), user([IMAGE])],
        ),
        (
            [CALL, result("c1", [IMAGE]), user("And now?")],
            [CALL, result("c1", SHOWN), user([IMAGE, {"type": "text", "text": "And now?"}])],
        ),
    ],
)
def test_where_they_go(messages: list[Json], expected: list[Json]) -> None:
    before = copy.deepcopy(messages)
    assert needs_rewriting(messages)
    assert rewritten(messages) == expected
    assert messages == before
    assert not needs_rewriting(expected)


@pytest.mark.parametrize(
    "messages",
    [
        [user("Hi.")],
        [system("Rules."), user([IMAGE, {"type": "text", "text": "Look."}]), CALL],
        [user("Hi."), CALL, result("c1", [{"type": "text", "text": "ok"}]), result("c2", None)],
    ],
)
def test_others_stay(messages: list[Json]) -> None:
    assert not needs_rewriting(messages)
    assert rewritten(messages)[0] == messages[0]


def test_fields_of_the_client_s_stay() -> None:
    named = {**user("Go on."), "name": "ann"}
    assert rewritten([user("Hi."), CALL, system("Hook."), named])[-1]["name"] == "ann"
