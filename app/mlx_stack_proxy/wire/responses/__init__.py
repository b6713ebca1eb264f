"""OpenAI's Responses API, as Codex and OpenAI's newer clients speak it, without a store.

A request is a list of items and fields, most of which chat completions have too (``request.py``),
with tools in three shapes (``tools.py``). A reply is a list of items again. In a stream
each item is opened, grows and is closed before the next one opens (``stream.py``); an unstreamed
reply is the response in such a stream's last event.

Nothing is stored, so a request that needs a store is refused: ``previous_response_id``,
``conversation``, ``item_reference``, ``prompt``, ``background`` and a compaction by another server.
The model is shown a custom tool's grammar, but the grammar is not enforced.
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
    # Codex tries a WebSocket first. After 426 it uses HTTP at once, else only after six more tries.
    websocket_status=426,
    own_headers=(b"x-codex-",),
)
