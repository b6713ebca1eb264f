"""Transcripts as clients send them, and a check of what is read of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import orjson

from app.core.beginnings import Beginnings
from app.core.blocks import Blocks
from app.core.messages import BLOCK, Messages

Json = dict[str, Any]
Writes = Callable[[Any], bytes]

SYSTEM = {"role": "system", "content": 'You write "messages":[ and {"messages": []}.'}
WORDS = 'Größe, 日本, \N{PILE OF POO}, \\ and "quotes" </script> &amp; \u2028 ' + "word " * 16


def spaced(value: Any) -> bytes:
    return json.dumps(value).encode()


def indented(value: Any) -> bytes:
    return json.dumps(value, indent=2, ensure_ascii=False).encode()


def as_go(value: Any) -> bytes:
    text = orjson.dumps(value).replace(b"<", rb"\u003c").replace(b">", rb"\u003e")
    return text.replace(b"&", rb"\u0026")


def slashed(value: Any) -> bytes:
    return orjson.dumps(value).replace(b"/", rb"\/")


WRITERS: dict[str, Writes] = {
    "compact": orjson.dumps,
    "spaced": spaced,
    "indented": indented,
    "as Go": as_go,
    "slashed": slashed,
}


def said(count: int, name: str = "a") -> list[Json]:
    found: list[Json] = []
    for number in range(count):
        if number % 3 == 1:
            arguments = json.dumps({"path": f"{name}/{number}.py", "messages": [1.5, 1e400]})
            function = {"name": "read", "arguments": arguments}
            call = {"id": f"call_{number}", "type": "function", "function": function}
            found.append({"role": "assistant", "content": None, "tool_calls": [call]})
        elif number % 3 == 2:
            result = f"{name} {number}: {WORDS}"
            found.append({"role": "tool", "tool_call_id": f"call_{number - 1}", "content": result})
        else:
            found.append({"role": "user", "content": [{"type": "text", "text": f"{name}{number}"}]})
    return found


def told(messages: list[Any], **others: Any) -> Json:
    return {"model": "fast", "messages": messages, "temperature": 0.2, **others}


def learn(beginnings: Beginnings, raw: bytes) -> Json:
    """As a request is read that came; its body."""
    body = beginnings.body(raw) or orjson.loads(raw)
    beginnings.learn(raw, Blocks(body["messages"]))
    return body


def check(found: Json | None, raw: bytes) -> int:
    """That a request is the one in its body; how many messages of it weren't read."""
    whole = orjson.loads(raw)
    if found is None or not isinstance(found["messages"], Messages):
        assert found is None or found == whole
        return 0
    messages, given_ = found["messages"], whole["messages"]
    assert {**found, "messages": given_} == whole
    blocks = Blocks(messages)
    written = b"".join(blocks.take_json())
    assert orjson.loads(b"[%b]" % written) == given_
    assert b"".join(blocks.take_json()) and blocks.names == Blocks(given_).names
    assert list(messages) == given_ and list(reversed(messages)) == given_[::-1]
    assert list(blocks.said) == list(Blocks(given_).said) and len(messages) == len(given_)
    return messages.before


# A body of which one block is known again.
KNOWN = orjson.dumps(told(said(BLOCK + 1)))
