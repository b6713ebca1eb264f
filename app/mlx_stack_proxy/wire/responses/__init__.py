"""OpenAI's Responses API without a store, as Codex and OpenAI's newer clients use it.

A request is a list of items and fields, most of which chat completions also have (``request.py``),
with tools in three shapes (``tools.py``). A reply is a list of items again. In a stream, each item
is opened, grows and is closed before the next one opens (``stream.py``); an unstreamed reply is the
response in such a stream's last event.

Nothing is stored, so a request that needs a store is refused: ``previous_response_id``,
``conversation``, ``item_reference``, ``prompt``, ``background`` and a compaction by another server.
The model sees a custom tool's grammar, but the grammar is not enforced.
"""

from __future__ import annotations

from ..dialect import Dialect
from .errors import error_reply
from .request import to_chat
from .stream import ResponseStream

RESPONSES = Dialect(
    name="responses",
    paths=frozenset({"/v1/responses", "/responses"}),
    to_chat=to_chat,
    encoder=ResponseStream,
    error=error_reply,
    # Codex tries a WebSocket first. It uses HTTP at once after 426, else after six more tries.
    websocket_status=426,
    own_headers=(b"x-codex-",),
)
