"""Messages of which some came before: to whoever asks they are the same."""

from __future__ import annotations

import itertools

import orjson
import pytest

from app.core.beginnings import Beginnings
from app.core.exchange import ClientRequest
from app.core.ladder import needs
from app.core.legacy import to_tools
from app.core.messages import BLOCK, Messages, plain
from app.core.prompt_costs import measured
from app.core.prompt_size import estimate_prompt_tokens
from app.core.session_id import identify
from tests.core.exchanges import attempt, exchange
from tests.core.transcripts import KNOWN, SYSTEM, Json, learn, said, told


def test_who_wants_json_gets_a_list() -> None:
    beginnings = Beginnings()
    learn(beginnings, KNOWN)
    body = beginnings.body(KNOWN)
    assert body is not None
    assert orjson.loads(orjson.dumps(body, default=plain)) == orjson.loads(KNOWN)
    with pytest.raises(TypeError):
        orjson.dumps({"one": object()}, default=plain)


def test_messages_by_their_place() -> None:
    beginnings = Beginnings()
    whole = [SYSTEM, *said(3 * BLOCK + 24)]
    raw = orjson.dumps(told(whole))
    learn(beginnings, raw)
    body = beginnings.body(raw)
    assert body is not None and isinstance(body["messages"], Messages)
    whole = orjson.loads(raw)["messages"]
    for at in range(-len(whole), len(whole)):
        assert body["messages"][at] == whole[at]
    bounds = (
        None,
        0,
        1,
        5,
        BLOCK,
        2 * BLOCK + 3,
        3 * BLOCK + 1,
        3 * BLOCK + 3,
        -1,
        -9,
        -27,
        999,
        -999,
    )
    for start, stop, step in itertools.product(bounds, bounds, (None, 1, 4, -1, -5)):
        assert body["messages"][start:stop:step] == whole[start:stop:step]
    for at in (len(whole), -len(whole) - 1):
        with pytest.raises(IndexError):
            body["messages"][at]


@pytest.mark.parametrize("others", [{}, {"model": "fast"}])
def test_what_is_sent_is_what_the_messages_are_then(others: Json) -> None:
    beginnings = Beginnings()
    raw = orjson.dumps({"messages": [SYSTEM, *said(2 * BLOCK + 4)], **others})
    learn(beginnings, raw)
    for body in (orjson.loads(raw), beginnings.body(raw)):
        assert body is not None
        request = ClientRequest(body, "fast", False, False)
        for messages in (body["messages"], request.blocks.said, body["messages"][3:], ()):
            for _ in range(2):  # and again, in a second attempt
                made = attempt(exchange(request))
                made.request.body["messages"] = messages
                assert made.on_request() is None
                sent = orjson.loads(made.take_content())
                assert sent == {**orjson.loads(raw), "messages": [*messages]}


def test_whoever_asks_is_told_the_same() -> None:
    beginnings, sessions = Beginnings(), set()
    picture = {"type": "image_url", "image_url": {"url": "data:,"}}
    odd = {"role": "user", "content": [picture, {"type": "text", "text": "What is it?"}]}
    transcript = [SYSTEM, *said(9), odd, *said(4 * BLOCK)]
    for count in range(2 * BLOCK, 4 * BLOCK, 7):
        raw = orjson.dumps(told(transcript[:count], tools=[{"type": "function"}]))
        known, whole = learn(beginnings, raw), orjson.loads(raw)
        assert isinstance(known["messages"], Messages) == (count > 2 * BLOCK)
        one, other = (ClientRequest(b, "fast", False, False) for b in (known, whole))
        assert needs(one) == needs(other) == {"tools", "images"}
        assert measured(one.body) == measured(other.body) and len(measured(one.body).sizes) == count
        assert estimate_prompt_tokens(one.body) == estimate_prompt_tokens(other.body) > count
        assert one.prompt_tokens == other.prompt_tokens == estimate_prompt_tokens(other.body)
        assert one.turn == other.turn
        sessions |= {identify({}, r.body, "", r.blocks) for r in (one, other)}
        assert to_tools({**one.body, "functions": []}) == to_tools({**other.body, "functions": []})
    assert len(sessions) == 1
