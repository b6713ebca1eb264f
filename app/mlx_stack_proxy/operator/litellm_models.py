"""Ask LiteLLM once for its models, and say why it didn't tell: for ``check`` and ``init``."""

from __future__ import annotations

import os
import time

from ..engine.model_list import ModelList, names_in
from ..engine.upstream import Upstream, UpstreamError

# How LiteLLM answers a wrong key; 400 where it has no database.
_REFUSED = (400, 401, 403)


class NoModels(Exception):
    """LiteLLM didn't list its models; the message says why.

    ``next_step`` says what to do about it, ``reached`` whether LiteLLM answered at all.
    """

    def __init__(self, why: str, next_step: str, *, reached: bool) -> None:
        super().__init__(why)
        self.next_step = next_step
        self.reached = reached


async def ask(upstream: Upstream, key: str | None, variable: str | None) -> bytes:
    """Return the body of LiteLLM's ``/v1/models``. Raises :class:`NoModels`.

    ``variable``: the environment variable that ``key`` is read from, for the advice.
    """
    try:
        status, body = await ModelList(upstream, key, time.monotonic).fetch(None)
    except (UpstreamError, TimeoutError) as error:
        next_step = "start it, or say in upstream.base_url where it is"
        raise NoModels(str(error) or "no answer in time", next_step, reached=False) from None
    if status == 200 and names_in(body) is not None:
        return body
    # Without a key the status may also be 500: LiteLLM without a database fails to answer 401.
    why = "refused the key" if key and status in _REFUSED else f"answered status {status}"
    why += f" when asked for its models{'' if key else ' without a key'}"
    if variable is None:
        next_step = "name the variable that holds LiteLLM's key in upstream.api_key_env"
        why += " (upstream.api_key_env names no variable)"
    else:
        next_step = f"export {variable}=… with LiteLLM's master key, here and where the proxy runs"
        why += f" (${variable} is {'set' if os.environ.get(variable) else 'not set'})"
    raise NoModels(why, next_step, reached=True)
