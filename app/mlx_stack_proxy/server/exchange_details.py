"""``GET /mlx-stack/exchanges/{request_id}``: one exchange, attempt by attempt.

Its record says what happened, and so do its events. If ``observability.capture_failures`` has kept
the exchange, the attempts come from the capture, with what the model wrote and, if that was mended,
what the client got. Otherwise they come from the record.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import orjson

from ..driver.services import Services
from ..engine.upstream_answers import completion_in
from ..errors import invalid
from ..state.store import EventQuery
from ..telemetry.failure_capture import FILE, OLD_FILE
from ..telemetry.why import CAPTURED, why
from ..wire import sse
from ..wire.chunks import ChunkReader, MalformedChunk
from ..wire.delta import Delta, text_of
from ..wire.reply import Reply
from .kept import LAST, events_of, record_of

Json = dict[str, Any]
MAX_EVENTS: Final = 1000
MAX_CHARACTERS: Final = 100_000  # of a text; longer texts are cut
_UNKNOWN: Final = (
    "it is unknown, refused before any model was chosen, older than the records "
    "that are kept, or it went right at once some time ago"
)
_NO_RECORD: Final = (
    "No record of it is kept: it went right at once, is too old, or the store is new."
)
_EVENTS: Final = " Its events: `mlx-stack-proxy events --request {}`."


async def exchange_details(services: Services, request_id: str, agent: str | None = None) -> Json:
    """Return an exchange's record, attempts and events. Raises ``ProxyError`` (404).

    ``request_id``: ``last`` is the newest exchange that did not go right at once, of ``agent``.
    """
    record = await record_of(services, request_id, agent)
    if request_id == LAST and record is not None:
        request_id = record["request_id"]
    numbered, _ = await events_of(services, EventQuery(request_id=request_id, limit=MAX_EVENTS))
    events = [{"number": number, **event} for number, event in numbered]
    observability = services.settings.observability
    capturing = observability.capture_failures
    records: list[Json] = []
    if capturing:
        records = await asyncio.to_thread(captured, observability.capture_path, request_id)
    newest: Mapping[str, Any] | None = record or next(reversed(events or records), None)
    if newest is None:
        sentence = f"nothing is kept of a request {request_id[:64]!r}: {_UNKNOWN}"
        if request_id == LAST:
            whose = f"of agent {agent[:64]!r} " if agent else ""
            sentence = f"nothing is kept {whose}that did not go right at once"
        raise invalid(sentence, status=404)
    data = record["detail"] if record is not None else {}
    if record is not None:
        explained = why(record, capturing=capturing)
    else:
        explained = f"{_NO_RECORD}{_EVENTS.format(request_id) if events else ''}"
        explained += f" {CAPTURED}." if records else ""
    return {
        "request_id": request_id,
        "session": newest["session"],
        "agent": newest.get("agent"),
        "time": newest["time"],
        "captured": bool(records),
        "outcome": data.get("outcome") or (records[-1].get("outcome") if records else None),
        "record": data or None,
        "why": explained,
        "request": _request(records[-1]["request"]) if records else None,
        "attempts": [_attempt(one) for one in records] or data.get("attempts", []),
        "events": events,
    }


def captured(folder: str, request_id: str) -> list[Json]:
    """Return a request's capture records, first attempt first. Reads files: call it in a thread."""
    records: list[Json] = []
    needle = b'"request_id":' + orjson.dumps(request_id)
    for name in (OLD_FILE, FILE):
        # Without the file nothing was captured yet.
        with contextlib.suppress(OSError), (Path(folder).expanduser() / name).open("rb") as file:
            for line in file:
                if needle in line:
                    with contextlib.suppress(orjson.JSONDecodeError):
                        records.append(orjson.loads(line))
    records = [record for record in records if record.get("request_id") == request_id]
    return sorted(records, key=lambda record: int(record["attempt"]))


def _attempt(record: Json) -> Json:
    verdict, reply = record.get("verdict"), record.get("reply") or {}
    delivered = record.get("delivered")
    return {
        "tier": record["tier"],
        "time": record["time"],
        "seconds": record["seconds"],
        "reason": verdict["reason"] if verdict else None,
        "status": reply.get("status"),
        "verdict": verdict,
        "written": _cut(written(reply)),
        "delivered": _cut(delivered) if delivered else None,
        "cut_off": bool(reply.get("cut_off")),
    }


def _request(body: Json) -> Json:
    """Return a summary of the request, with its last message, which the reply answers."""
    messages = body.get("messages")
    messages = messages if isinstance(messages, list) else []
    last = messages[-1] if messages and isinstance(messages[-1], dict) else {}
    return {
        "model": str(body.get("model") or ""),
        "messages": len(messages),
        "tools": len(body.get("tools") or ()),
        "role": str(last.get("role") or ""),
        "last": text_of(last.get("content"))[:MAX_CHARACTERS],
    }


def written(reply: Json) -> Json:
    """Return the first choice's message from the reply's bytes as they came."""
    parsed = Reply()
    # A chunk that can't be read ends the message; the verdict says what was wrong with it.
    with contextlib.suppress(MalformedChunk, sse.FrameTooLong, orjson.JSONEncodeError):
        for delta in filter(None, _deltas(reply)):
            parsed.take(delta)
    choice = parsed.choice(0)
    calls = [{"name": call.name, "arguments": call.arguments} for call in choice.tool_calls]
    return {"reasoning": choice.reasoning, "text": choice.text, "tool_calls": calls}


def _deltas(reply: Json) -> Iterator[Delta | None]:
    reader = ChunkReader("", "")
    if (stream := _bytes(reply, "stream")) is None:
        completion = completion_in(_bytes(reply, "body") or b"")
        if isinstance(completion, dict):
            yield from reader.read_completion(completion)
        return
    frames = sse.FrameReader()
    yield from map(reader.read, frames.feed(stream))
    if (last_frame := frames.finish()) is not None:
        yield reader.read(last_frame)


def _cut(message: Json) -> Json:
    """Cut a message's texts to ``MAX_CHARACTERS``, and the list of its calls."""
    calls = [{k: v[:MAX_CHARACTERS] for k, v in call.items()} for call in message["tool_calls"]]
    texts = {k: v[:MAX_CHARACTERS] for k, v in message.items() if k != "tool_calls"}
    return {**texts, "tool_calls": calls[:MAX_EVENTS]}


def _bytes(reply: Json, name: str) -> bytes | None:
    if isinstance(text := reply.get(name), str):
        return text.encode("utf-8", "replace")
    if isinstance(encoded := reply.get(f"{name}_base64"), str):
        return base64.b64decode(encoded)
    return None
