"""Anthropic's Messages API, as Claude Code and the ``anthropic`` SDK speak it.

``request.py`` translates the request, ``stream.py`` writes the reply, and ``errors.py`` gives each
error a status after which these clients don't retry. What chat completions lack is left out:
signatures of thinking, cache marks, betas, and which stop sequence ended a reply.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..dialect import Dialect
from ..transcript import Json
from .errors import error_reply
from .request import count_tokens, to_chat
from .stream import MessagesEncoder


def _listed(names: Sequence[str]) -> Json:
    """Return a list of models on one page; their creation time is unknown."""
    made = "1970-01-01T00:00:00Z"
    data = [
        {"type": "model", "id": name, "display_name": name, "created_at": made} for name in names
    ]
    ends = {"first_id": names[0], "last_id": names[-1]} if names else {}
    return {"data": data, "has_more": False, "first_id": None, "last_id": None, **ends}


MESSAGES = Dialect(
    name="messages",
    paths=frozenset({"/v1/messages"}),
    to_chat=to_chat,
    encoder=MessagesEncoder,
    error=error_reply,
    # Claude Code gives up after at least 300 s of silence.
    first_keepalive=240.0,
    count_paths=frozenset({"/v1/messages/count_tokens"}),
    count=count_tokens,
    own_headers=(b"anthropic-",),
    version_header="anthropic-version",
    models=_listed,
)
