"""Which models LiteLLM has, asked once: for `check`, and for `init`."""

from __future__ import annotations

import os
import time

from ..engine.model_list import ModelList, names_in
from ..engine.upstream import Upstream, UpstreamError

# LiteLLM's administration answers so to a key that is none; 400 without a database.
_REFUSED = (400, 401, 403)


class NoModels(Exception):
    """LiteLLM doesn't tell; the message says why, ``next_step`` what to do about it.

    ``reached``: whether it answers at all.
    """

    def __init__(self, why: str, next_step: str, *, reached: bool) -> None:
        super().__init__(why)
        self.next_step = next_step
        self.reached = reached


async def ask(upstream: Upstream, key: str | None, variable: str | None) -> bytes:
    """Its ``/v1/models``, whole; ``variable``: where the key is from. Raises :class:`NoModels`."""
    try:
        status, body = await ModelList(upstream, key, time.monotonic).fetch(None)
    except (UpstreamError, TimeoutError) as error:
        next_step = "start it, or say in upstream.base_url where it is"
        raise NoModels(str(error) or "no answer in time", next_step, reached=False) from None
    if status == 200 and names_in(body) is not None:
        return body
    # Without a key it may also be 500: LiteLLM without a database fails at saying 401.
    why = "refused the key" if key and status in _REFUSED else f"answered status {status}"
    why += f" when asked for its models{'' if key else ' without a key'}"
    if variable is None:
        next_step = "name the variable that holds LiteLLM's key in upstream.api_key_env"
        why += " (upstream.api_key_env names no variable)"
    else:
        next_step = f"export {variable}=… with LiteLLM's master key, here and where the proxy runs"
        why += f" (${variable} is {'set' if os.environ.get(variable) else 'not set'})"
    raise NoModels(why, next_step, reached=True)
