"""Anthropic's Messages API, as Claude Code and the ``anthropic`` SDK speak it.

A request becomes that of a chat completion in ``request.py``: its content in ``content.py``, its
tools in ``tools.py``. What comes back is written by ``stream.py``;
``errors.py`` knows which status costs these clients one try. What can't be said in a chat
completion is left out: signatures of thinking, cache marks, betas, which stop sequence it was.
"""

from __future__ import annotations

from ..dialect import Dialect
from .errors import error_reply
from .models import listed
from .request import count_tokens, to_chat
from .stream import MessagesEncoder, whole

MESSAGES = Dialect(
    name="messages",
    paths=frozenset({"/v1/messages"}),
    to_chat=to_chat,
    encoder=MessagesEncoder,
    whole=whole,
    error=error_reply,
    # Claude Code gives up after 300 s of silence, and asks for no less than that.
    first_keepalive=240.0,
    count_paths=frozenset({"/v1/messages/count_tokens"}),
    count=count_tokens,
    own_headers=(b"anthropic-",),
    version_header="anthropic-version",
    models=listed,
)
