"""``/v1/responses``: what Codex and OpenAI's newer clients speak, without a store behind it.

A request is a list of items (``items.py``), tools in three shapes (``tools.py``) and fields, most
of which chat completions have too (``request.py``). A reply is a list of items again: while it is
streamed, each is opened, grows and is closed before the next one opens (``stream.py``); unstreamed
it is what the last event of such a stream holds. What the response says of its request is encoded
once for all events that carry it (``echo.py``).

Nothing is stored, so that all that asks for a store is refused: ``previous_response_id``,
``conversation``, ``item_reference``, ``prompt``, ``background`` and a foreign compaction. The
grammar of a custom tool is told to the model, and is not enforced.
"""

from __future__ import annotations

from ..dialect import Dialect
from .errors import error_reply
from .request import to_chat
from .stream import ResponseStream, whole

RESPONSES = Dialect(
    name="responses",
    paths=frozenset({"/v1/responses", "/responses"}),
    to_chat=to_chat,
    encoder=ResponseStream,
    whole=whole,
    error=error_reply,
    # Codex tries one first, and HTTP at once after 426; after anything else only six tries later.
    websocket_status=426,
    own_headers=(b"x-codex-",),
)
