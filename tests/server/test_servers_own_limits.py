"""Refusals that are about one server, not about the client's request; and unread tool calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from tests.faults.catalogue import good
from tests.faults.clients import TOOLS
from tests.server.asking import MESSAGES, ask, payloads
from tests.server.calling import messages_of
from tests.server.climbing import asked, by_model
from tests.server.conftest import StartProxy
from tests.support.messages import called, gave, says, tool_call
from tests.support.replies import ROLE, TEXT, data, litellm_error
from tests.support.scripted_server import Call, Reply, WhenWhole

Json = dict[str, Any]
MINE = {"X-MLX-Stack-Session": "mine"}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
CALLED = called(tool_call("c1", "look"))
HOOKED = [
    says("system", "Be brief."),
    *MESSAGES,
    says("assistant", "Hello."),
    says("system", "Hook: two tests failed."),
    says("user", "Go on."),
]
SEEN = [*MESSAGES, CALLED, gave("c1", [IMAGE])]


@pytest.mark.parametrize(
    "refusal",
    [
        litellm_error(400, "failed to compile the grammar of tool `edit`: too many repetitions"),
        litellm_error(400, "The provided JSON schema contains features unknown to xgrammar."),
        litellm_error(500, "Error rendering prompt with jinja template: unknown filter"),
        litellm_error(422, "conversation roles must alternate user/assistant"),
    ],
    ids=["grammar", "xgrammar", "template", "roles"],
)
async def test_another_server_is_asked_once(refusal: Reply, three_tiers: StartProxy) -> None:
    proxy = await three_tiers(retries=3, sticky_seconds=300)
    proxy.upstream.always(by_model(fast=refusal))
    response = await ask(proxy, MINE, tools=TOOLS)
    assert response.status_code == 200, response.text
    assert asked(proxy.upstream) == ["fast", "standard"]
    # The session has learnt it.
    response = await ask(proxy, MINE, tools=TOOLS, messages=[*MESSAGES, *MESSAGES])
    assert asked(proxy.upstream)[2:] == ["standard"]
    # If another server says so too, the client gets the answer as it came.
    proxy.upstream.calls.clear()
    proxy.upstream.always(refusal)
    response = await ask(proxy, tools=TOOLS)
    assert response.content == refusal.pieces[0]
    assert asked(proxy.upstream) == ["fast", "standard"]


async def test_bad_parameters_are_the_client_s(three_tiers: StartProxy) -> None:
    proxy = await three_tiers(retries=3)
    proxy.upstream.always(litellm_error(400, "top_p must be in (0, 1], got 3.0"))
    assert (await ask(proxy)).status_code == 400
    assert asked(proxy.upstream) == ["fast"]


def late_system(messages: list[Json]) -> bool:
    return any(message["role"] == "system" for message in messages[1:])


def image_in_result(messages: list[Json]) -> bool:
    return any(m["role"] == "tool" and isinstance(m["content"], list) for m in messages)


@pytest.mark.parametrize(
    ("messages", "refused", "refusal"),
    [
        (
            HOOKED,
            late_system,
            litellm_error(500, "System message must be the first one in the conversation."),
        ),
        (
            SEEN,
            image_in_result,
            litellm_error(400, "Images are only allowed in messages with role 'user'."),
        ),
    ],
    ids=["a late system message", "an image in a result"],
)
async def test_a_strict_template_is_asked_in_its_form_and_remembered(
    messages: list[Json],
    refused: Callable[[list[Json]], bool],
    refusal: Reply,
    three_tiers: StartProxy,
) -> None:
    def choose(call: Call) -> Reply:
        return refusal if refused(messages_of(call)) else good(False)

    proxy = await three_tiers(retries=3)
    proxy.upstream.always(WhenWhole(choose))
    assert (await ask(proxy, messages=messages)).status_code == 200
    assert asked(proxy.upstream) == ["fast", "fast"]
    assert messages_of(proxy.upstream.calls[0]) == messages, "others may take it as it is"
    assert (await ask(proxy, messages=messages)).status_code == 200
    assert asked(proxy.upstream) == ["fast"] * 3, "the tier is remembered"


RETRIED: Final[Json] = {"reliability.tool_validation.max_retries": 3}
UNREAD = [
    "litellm.APIConnectionError: Ollama_chatException - error parsing tool call: "
    "raw='{\"path\": \"a\"]', err=invalid character ']' after object key:value pair",
    "Failed to parse input at pos 17: <tool_call>{",
    "Failed to parse tool call: Unexpected end of content.",
]


@pytest.mark.parametrize("status", [400, 500])
@pytest.mark.parametrize("words", UNREAD)
async def test_a_call_that_the_server_could_not_read_is_asked_for_again(
    words: str, status: int, three_tiers: StartProxy
) -> None:
    proxy = await three_tiers(RETRIED, retries=3)
    proxy.upstream.will(litellm_error(status, words), good(True))
    response = await ask(proxy, tools=TOOLS)
    assert response.json()["choices"][0]["finish_reason"] == "tool_calls"
    first, second = map(messages_of, proxy.upstream.calls)
    assert asked(proxy.upstream) == ["fast", "fast"]
    assert first == MESSAGES
    said = "could not be read: invalid character ']' after object key:value pair."
    assert (said if "err=" in words else "could not be read.") in second[-1]["content"]


async def test_also_after_some_prose(three_tiers: StartProxy) -> None:
    proxy = await three_tiers(RETRIED, retries=3)
    proxy.upstream.will(Reply.sse(ROLE, TEXT, data({"error": {"message": UNREAD[0]}})), good(True))
    response = await ask(proxy, tools=TOOLS, stream=True)
    *_, last, done = payloads(response.content)
    assert (done, last["choices"][0]["finish_reason"]) == ("[DONE]", "tool_calls")


async def test_a_call_that_is_never_read(three_tiers: StartProxy) -> None:
    changes = {**RETRIED, "reliability.tool_validation.on_exhausted": "return_last"}
    proxy = await three_tiers(changes, chain=["fast"], retries=1)
    proxy.upstream.always(litellm_error(500, UNREAD[1]))
    response = await ask(proxy, tools=TOOLS)
    assert response.status_code == 422, "there is nothing to return"
    assert response.json()["error"]["type"] == "tool_validation_failed"
