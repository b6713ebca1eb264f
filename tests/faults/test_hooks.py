"""What LiteLLM's hooks can do with a reply: the table of benchmarks/comparison.md.

Where one of these begins to fail, LiteLLM may have learnt what the layer inside it has to do
otherwise. LiteLLM alone is asked, without the layer.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.faults.catalogue import SILENCE_SECONDS, settings, whole
from tests.faults.clients import read
from tests.faults.hooks import OURS
from tests.faults.places import Behind
from tests.support.replies import completion, litellm_error, text_chunks
from tests.support.scripted_server import Call, Reply, WhenWhole

THEIRS = "their reply"
FELL = "the model fell over"
# What is asked; then of a reply that isn't streamed and of one that is: status, text, calls made.
FACTS: dict[str, list[tuple[int, str, int]]] = {
    "pre_call returns a text": [(400, OURS, 0), (400, OURS, 0)],
    "pre_call returns a reply": [(200, THEIRS, 1), (200, THEIRS, 1)],
    "pre_call raises a reply": [(200, OURS, 0), (200, OURS, 0)],
    "pre_call mocks a reply": [(200, OURS, 0), (200, OURS, 0)],
    "failure returns a reply": [(500, FELL, 1), (500, FELL, 1)],
    "success returns a reply": [(200, OURS, 1), (200, THEIRS, 1)],
}


def _play(call: Call) -> Reply:
    body: Any = call.json()
    if body["messages"][0]["content"].startswith("failure"):
        return litellm_error(500, FELL)
    if body.get("stream"):
        return whole(text_chunks(*THEIRS.partition(" ")))
    return Reply.json(completion({"role": "assistant", "content": THEIRS}))


@pytest.mark.parametrize("column", ["proxy"], indirect=True)
async def test_what_a_hook_can_do_with_a_reply(column: Behind) -> None:
    found: dict[str, list[tuple[int, str, int]]] = {}
    async with (
        column.proxy(settings(SILENCE_SECONDS), replies=1),
        column.litellm_itself() as asked_of,
    ):
        fast = column.servers["fast"]
        fast.always(WhenWhole(_play))
        for asked in FACTS:
            for stream in (False, True):
                fast.calls.clear()
                messages = [{"role": "user", "content": asked}]
                body = {"model": "fast", "messages": messages, "stream": stream}
                outcome = read(await asked_of.post("/v1/chat/completions", json=body))
                text = outcome.text
                if outcome.error is not None:
                    message = outcome.error["message"]
                    text = FELL if FELL in message else message
                found.setdefault(asked, []).append((outcome.status, text, len(fast.calls)))
    assert found == FACTS
