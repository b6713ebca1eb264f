"""Messages as a strict chat template takes them: one system message, images from users alone."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from mlx_stack_proxy.wire.strict_template import needs_rewriting, rewritten
from tests.support.messages import gave, reminder, says

Json = dict[str, Any]
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
CALL = {"role": "assistant", "tool_calls": [{"id": "c1"}, {"id": "c2"}]}


def system(text: str, role: str = "system") -> Json:
    return says(role, text)


def user(content: Any) -> Json:
    return says("user", content)


SHOWN = "[an image: see the message after this]"


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        # A later system message is the user's text, where it stands.
        (
            [system("Rules."), user("Hi."), system("Lint failed."), user("Go on.")],
            [system("Rules."), user("Hi."), user(f"{reminder('Lint failed.')}\n\nGo on.")],
        ),
        (
            [user("Hi."), system("Be brief."), CALL],
            [user(f"Hi.\n\n{reminder('Be brief.')}"), CALL],
        ),
        ([user("Hi."), system("Late.", "developer")], [user(f"Hi.\n\n{reminder('Late.')}")]),
        # At the head they become one.
        ([system("One."), system("Two."), user("Hi.")], [system("One.\n\nTwo."), user("Hi.")]),
        # Nothing comes between a call and its results.
        (
            [CALL, gave("c1", "ok"), system("Hook."), gave("c2", "ok")],
            [CALL, gave("c1", "ok"), gave("c2", "ok"), user(reminder("Hook."))],
        ),
        # An image of a result follows the results.
        (
            [CALL, gave("c1", [{"type": "text", "text": "seen"}, IMAGE]), gave("c2", "ok")],
            [CALL, gave("c1", f"seen\n\n{SHOWN}"), gave("c2", "ok"), user([IMAGE])],
        ),
        (
            [CALL, gave("c1", [IMAGE]), user("And now?")],
            [CALL, gave("c1", SHOWN), user([IMAGE, {"type": "text", "text": "And now?"}])],
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
        [user("Hi."), CALL, gave("c1", [{"type": "text", "text": "ok"}]), gave("c2", None)],
    ],
)
def test_others_stay(messages: list[Json]) -> None:
    assert not needs_rewriting(messages)
    assert rewritten(messages)[0] == messages[0]


def test_fields_of_the_client_s_stay() -> None:
    named = {**user("Go on."), "name": "ann"}
    assert rewritten([user("Hi."), CALL, system("Hook."), named])[-1]["name"] == "ann"
