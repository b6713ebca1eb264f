"""``GET /mlx-stack/exchanges/{request_id}``: one exchange, attempt by attempt.

The store's events say what happened. If ``observability.capture_failures`` has kept the exchange,
the attempts come from its records, with what the model wrote and, if that was mended, what the
client got. Otherwise they come from the event that lists them, if there is one.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import orjson

from ..engine.services import Services
from ..engine.upstream_answers import completion_in
from ..errors import INVALID_REQUEST, ProxyError
from ..state.store import EventQuery
from ..telemetry.failure_capture import FILE, OLD_FILE
from ..wire import sse
from ..wire.chunk_form import ChunkForm
from ..wire.chunks import Chunk, MalformedChunk, chunks_of_completion, read_frame, text_of
from ..wire.reply import Reply

Json = dict[str, Any]
MOST_EVENTS: Final = 1000
MOST_CHARACTERS: Final = 100_000  # of a text; longer texts are cut


async def exchange_details(services: Services, request_id: str) -> Json:
    """Return an exchange's attempts and events. Raises ``ProxyError`` (404), ``StoreError``."""
    query = EventQuery(request_id=request_id, limit=MOST_EVENTS)
    numbered = await services.store.events(query)
    events = [{"number": number, **event} for number, event in numbered]
    observability = services.settings.observability
    records: list[Json] = []
    if observability.capture_failures:
        records = await asyncio.to_thread(captured, observability.capture_path, request_id)
    if not events and not records:
        sentence = f"nothing is kept of a request {request_id[:64]!r}"
        raise ProxyError(404, INVALID_REQUEST, sentence)
    newest: Mapping[str, Any] = events[-1] if events else records[-1]
    return {
        "request_id": request_id,
        "session": newest["session"],
        "agent": newest.get("agent"),
        "time": newest["time"],
        "captured": bool(records),
        "outcome": records[-1].get("outcome") if records else None,
        "request": _request(records[-1]["request"]) if records else None,
        "attempts": [_attempt(record) for record in records] or _listed(events),
        "events": events,
    }


def captured(folder: str, request_id: str) -> list[Json]:
    """Return a request's capture records, first attempt first. Reads files: call it in a thread."""
    records: list[Json] = []
    for name in (OLD_FILE, FILE):
        try:
            with (Path(folder).expanduser() / name).open("rb") as file:
                records += _records(file, request_id)
        except OSError:  # nothing was captured yet
            continue
    return sorted(records, key=lambda record: int(record["attempt"]))


def _records(file: Iterable[bytes], request_id: str) -> Iterator[Json]:
    needle = b'"request_id":' + orjson.dumps(request_id)
    for line in file:
        if needle not in line:
            continue
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError:
            continue
        if record.get("request_id") == request_id:
            yield record


def _listed(events: list[Json]) -> list[Json]:
    """Return the attempts, without texts, from the last event that lists any; or none."""
    for event in reversed(events):
        if isinstance(listed := event["detail"].get("attempts"), list):
            return listed
    return []


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
        "last": text_of(last.get("content"))[:MOST_CHARACTERS],
    }


def written(reply: Json) -> Json:
    """Return the first choice's message from the reply's bytes as they came."""
    parsed, form = Reply(), ChunkForm("", "")
    # A chunk that can't be read ends the message; the verdict says what was wrong with it.
    with contextlib.suppress(MalformedChunk, sse.FrameTooLong, orjson.JSONEncodeError):
        for chunk in _chunks(reply, form):
            for event in chunk.events:
                parsed.apply(event)
    choice = parsed.choice(0)
    calls = [{"name": call.name, "arguments": call.arguments} for call in choice.tool_calls]
    return {"reasoning": choice.reasoning, "text": choice.text, "tool_calls": calls}


def _chunks(reply: Json, form: ChunkForm) -> Iterator[Chunk]:
    if (stream := _bytes(reply, "stream")) is None:
        completion = completion_in(_bytes(reply, "body") or b"")
        if isinstance(completion, dict):
            yield from chunks_of_completion(completion, form)
        return
    reader = sse.FrameReader()
    yield from (read_frame(frame, form) for frame in reader.feed(stream))
    if (last_frame := reader.finish()) is not None:
        yield read_frame(last_frame, form)


def _cut(message: Json) -> Json:
    """Cut a message's texts to ``MOST_CHARACTERS``, and the list of its calls."""
    calls = [{k: v[:MOST_CHARACTERS] for k, v in call.items()} for call in message["tool_calls"]]
    texts = {k: v[:MOST_CHARACTERS] for k, v in message.items() if k != "tool_calls"}
    return {**texts, "tool_calls": calls[:MOST_EVENTS]}


def _bytes(reply: Json, name: str) -> bytes | None:
    if isinstance(text := reply.get(name), str):
        return text.encode("utf-8", "replace")
    if isinstance(encoded := reply.get(f"{name}_base64"), str):
        return base64.b64decode(encoded)
    return None
