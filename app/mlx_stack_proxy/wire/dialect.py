"""What a protocol of clients has to say for itself, so that the engine need know only one.

The engine speaks chat completions, to LiteLLM and inside. A :class:`Dialect` is one more protocol
that clients may speak at our edge: its module turns a request's body into that of a chat completion
(``to_chat``), the chunks of the reply into its own stream (``encoder``) or the whole reply into its
own object (``whole``), and an error into its own shape with the status that its clients take best
(``error``). It is pure: no clock, no I/O, nothing random, so that two requests that say the same
become the same bytes. ``table.py`` lists the dialects.

Whoever answers a request gets a :class:`Context` from the edge. A dialect raises
:class:`ProxyError` (400) for what can't be translated without losing what the client asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from ..errors import ProxyError
from ..frozen import frozen


@frozen
class SessionName:
    """The session that a client names in its own way.

    ``source``: the header or field, for ``X-MLX-Stack-Session``. ``name``: its history's.
    ``budget``: the one whose budget is spent, where that is another (a sub-agent's parent); or "".
    """

    source: str
    name: str
    budget: str = ""


@frozen
class Translated:
    """A request as a chat completion. ``body``: a new dict that may share parts with the given one.

    ``echo``: whatever the dialect's own encoder wants to know of the request, such as the kinds of
    the tools. ``left_out``: tools that are not offered to the model, for ``X-MLX-Stack-Left-Out``.
    ``session``: None where the client names none in the dialect's own way. ``failed``: the ids of
    the calls whose results say, by a flag of the dialect's own, that they are errors.
    """

    body: dict[str, Any]
    echo: Any = None
    left_out: tuple[str, ...] = ()
    session: SessionName | None = None
    failed: frozenset[str] = frozenset()


@frozen
class Context:
    """What a reply is written for.

    ``request_id``: as in ``X-MLX-Stack-Request-Id``. ``model``: the name that the client asked for.
    ``echo``: as :class:`Translated` has it. ``prompt_tokens``: an estimate, made when it is called.
    """

    request_id: str
    model: str
    echo: Any
    prompt_tokens: Callable[[], int]


@frozen
class ErrorReply:
    """An error in a dialect's shape. ``headers``: all that come of the error, content type too."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: dict[str, Any]


class Encoder(Protocol):
    """One reply's stream. Each method gives the bytes that go out now, maybe none.

    Before any of them but :meth:`error` gives bytes, those that must come first are put before.
    """

    def chunk(self, payload: Mapping[str, Any]) -> bytes:
        """Take a ``chat.completion.chunk``, of any attempt, in the order in which they go out.

        The one with the finish reason and the one with the usage may come in either order; a
        top-level ``mlx_stack`` is to be passed on with the last event.
        """

    def keepalive(self) -> bytes:
        """A sign of life that the dialect's clients count as one."""

    def error(self, error: ProxyError) -> bytes:
        """The end of a stream that can't be finished."""

    def end(self) -> bytes:
        """The end of a stream whose chunks have all been taken."""


def _no_models(_: Any) -> dict[str, Any]:
    return {}


@frozen
class Dialect:
    """A protocol. ``name``: a bounded word for logs. ``paths``: those it is served at, for POST.

    - ``to_chat(body, headers)``: names of headers are in lower case.
    - ``encoder(context)``: a new one for each stream.
    - ``whole(completion, context)``: of a ``chat.completion``.
    - ``error(error, request_id)``.
    - ``first_keepalive``: seconds before which no sign of life goes out, unless the operator has
      set ``stream.keepalive_seconds``: the first one forces the stream's beginning out, and with it
      the status. None: as that setting says.
    - ``count_paths``: where a prompt's tokens are counted, for POST; ``count(body)`` answers, and
      refuses nothing.
    - ``websocket_status``: what refuses a WebSocket at its paths, so that its clients use HTTP.
    - ``own_headers``: beginnings of request headers that mean nothing to LiteLLM.
    - ``version_header``: who sends it wants ``GET /v1/models`` as ``models(names)``, with the
      entries in ``data``.
    """

    name: str
    paths: frozenset[str]
    to_chat: Callable[[dict[str, Any], Mapping[str, str]], Translated]
    encoder: Callable[[Context], Encoder]
    whole: Callable[[dict[str, Any], Context], dict[str, Any]]
    error: Callable[[ProxyError, str], ErrorReply]
    first_keepalive: float | None = None
    count_paths: frozenset[str] = frozenset()
    count: Callable[[dict[str, Any]], dict[str, Any]] = dict
    websocket_status: int = 400
    own_headers: tuple[bytes, ...] = ()
    version_header: str = ""
    models: Callable[[Sequence[str]], dict[str, Any]] = _no_models


class Outgoing:
    """One reply in a dialect, as the engine holds it: each method is the dialect's, bound."""

    __slots__ = ("_context", "dialect", "encoder")

    def __init__(self, dialect: Dialect, context: Context) -> None:
        self.dialect = dialect
        self._context = context
        self.encoder = dialect.encoder(context)

    def whole(self, completion: dict[str, Any]) -> dict[str, Any]:
        return self.dialect.whole(completion, self._context)

    def error(self, error: ProxyError) -> ErrorReply:
        return self.dialect.error(error, self._context.request_id)
