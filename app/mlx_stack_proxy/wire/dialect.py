"""The interface of a client protocol, so that the engine deals with one protocol only.

The engine uses chat completions internally and towards LiteLLM. A :class:`Dialect` is another
protocol that clients may use. Its module translates a request's body into a chat completion's
(``to_chat``), the reply into its own stream or object (``encoder``), and an error into its own
shape, with the status that its clients handle best (``error``). A dialect reads no clock, does no
I/O and uses no randomness, so equal requests become equal bytes. ``table.py`` lists the dialects.

The edge gives each handler of a request a :class:`Context`. A dialect raises :class:`ProxyError`
(400) for a request that can't be translated without losing what the client asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from ..errors import ProxyError
from .call import Call
from .delta import Delta, split_text
from .reply import ChoiceReply, Reply


class SessionName(Struct, frozen=True):
    """The session that a client names in its dialect's own way."""

    source: str  # the header or field that names it, for ``X-MLX-Stack-Session``
    name: str  # names the session's history
    budget: str = ""  # the session whose budget is charged, if another (a sub-agent's parent)


class Translated(Struct, frozen=True):
    """A request, translated into a chat completion's."""

    body: dict[str, Any]  # a new dict, which may share parts with the client's body
    echo: Any = None  # the facts about the request that the dialect's encoder needs
    left_out: tuple[str, ...] = ()  # tools not offered to the model: ``X-MLX-Stack-Left-Out``
    session: SessionName | None = None  # None: the client names none in the dialect's own way
    # Ids of the calls whose results are errors, by a flag of the dialect's own.
    failed: frozenset[str] = frozenset()


class Context(Struct, frozen=True):
    """What the encoder of a reply needs to know about the request."""

    request_id: str  # as in ``X-MLX-Stack-Request-Id``
    model: str  # the name that the client asked for
    echo: Any  # as in :class:`Translated`
    prompt_tokens: Callable[[], int]  # estimates the prompt's tokens when called


class ErrorReply(Struct, frozen=True):
    """An error in a dialect's shape."""

    status: int
    headers: list[tuple[bytes, bytes]]  # all headers of the error response, content type included
    body: dict[str, Any]


class Ending(Struct, frozen=True):
    """The end of a reply, after its texts."""

    calls: Sequence[Call]
    finish: str | None  # OpenAI's finish reason
    usage: Mapping[str, Any] | None  # OpenAI's, as upstream sent it
    more: Mapping[str, Any]  # further fields for the stream's last event, or for the object


class Encoder(Protocol):
    """Writes one reply's stream. Each method returns the bytes to send now, perhaps none.

    The first bytes, unless :meth:`error` returns them, include the beginning of the stream.
    """

    def identify(self, top: Mapping[str, Any]) -> None:
        """Use the fields that the reply's chunks share; only the first call counts."""

    def write(self, kind: str, text: str) -> bytes:
        """Write a piece of text. ``kind``: "reasoning", "text" or "refusal"."""

    def keepalive(self) -> bytes:
        """Write a keepalive that the dialect's clients accept."""

    def error(self, error: ProxyError) -> bytes:
        """End a stream that can't be finished."""

    def end(self, ending: Ending) -> bytes:
        """End a stream whose texts have all been written."""

    def whole(self, ending: Ending) -> dict[str, Any]:
        """Return a reply, whose texts have all been written, as the dialect's own object."""


class Dialect(Struct, frozen=True):
    """A protocol that clients may speak."""

    name: str  # for logs
    paths: frozenset[str]  # the POST paths of the protocol
    # Translates a body; the second argument is the headers, with lower-case names.
    to_chat: Callable[[dict[str, Any], Mapping[str, str]], Translated]
    encoder: Callable[[Context], Encoder]  # makes an encoder for each stream
    error: Callable[[ProxyError, str], ErrorReply]  # also takes the request's id
    # No keepalive goes out before this many seconds, unless the operator has set
    # ``stream.keepalive_seconds``, because the first keepalive commits the status and the stream's
    # beginning. None: that setting alone decides.
    first_keepalive: float | None = None
    count_paths: frozenset[str] = frozenset()  # the POST paths for counting a prompt's tokens
    count: Callable[[dict[str, Any]], dict[str, Any]] = dict  # never raises
    websocket_status: int = 400  # for a WebSocket at ``paths``, so that clients use HTTP
    own_headers: tuple[bytes, ...] = ()  # prefixes of request headers that are useless to LiteLLM
    # For a client that sends this header, ``GET /v1/models`` returns ``models(names)``, with the
    # entries in ``data``.
    version_header: str = ""
    models: Callable[[Sequence[str]], dict[str, Any]] = lambda names: {}


def error_reply(dialect: Dialect | None, error: ProxyError, request_id: str) -> ErrorReply:
    """Write an error for a client of ``dialect``; None: of chat completions."""
    if dialect is not None:
        return dialect.error(error, request_id)
    return ErrorReply(error.status, error.headers(), error.body())


class DialectRenderer:
    """Translates one attempt's reply; the counterpart of :class:`~.chat.ChatRenderer`.

    ``continues``: the client already has reasoning of an earlier attempt.
    """

    def __init__(
        self, encoder: Encoder, top: Callable[[], dict[str, Any]], *, continues: bool
    ) -> None:
        self._encoder = encoder
        self._top = top
        self._continues = continues
        self._identified = False

    split = staticmethod(split_text)

    def release(self, delta: Delta) -> bytes:
        if not self._identified:
            self._encoder.identify(self._top())
            self._identified = True
        out: list[bytes] = []
        for piece in delta.choices:
            if piece.index:  # a dialect asks for one choice and can't represent more
                continue
            said = piece.delta
            out += self._texts(said.thought, said.content or "", said.refusal or "")
        return b"".join(out)

    def hold(self, delta: Delta) -> None:
        """Nothing to keep: the reply has everything."""

    def continue_stream(self, identity: Mapping[str, Any]) -> None:
        """Nothing to do: all attempts share one encoder."""

    def unpack(self) -> None:
        """Nothing to decompress."""

    def end(self, done_frame: bytes) -> None:
        """Nothing to do: a dialect has its own end."""

    def rest(
        self, reply: Reply, note: bytes = b"", metadata: dict[str, Any] | None = None
    ) -> bytes:
        out = self._rest_of_texts(reply)
        return b"".join([*out, note, self._encoder.end(_ending(reply, metadata))])

    def whole(self, reply: Reply, metadata: dict[str, Any] | None = None) -> dict[str, Any]:
        self._rest_of_texts(reply)
        return self._encoder.whole(_ending(reply, metadata))

    def _rest_of_texts(self, reply: Reply) -> Sequence[bytes]:
        self._encoder.identify(self._top())
        choice = reply.choices.get(0)
        if choice is None:
            return ()
        return self._texts(
            choice.reasoning[reply.thoughts_out :],
            choice.text[reply.flowed :],
            choice.refusal[reply.refusal_out :],
        )

    def _texts(self, thought: str, text: str, refusal: str) -> Sequence[bytes]:
        thought = "" if self._continues else thought
        texts = ("reasoning", thought), ("text", text), ("refusal", refusal)
        return [self._encoder.write(kind, piece) for kind, piece in texts if piece]


def _ending(reply: Reply, metadata: dict[str, Any] | None) -> Ending:
    choice = reply.choices.get(0) or ChoiceReply()
    more = {} if metadata is None else {"mlx_stack": metadata}
    return Ending(choice.tool_calls, choice.finish_reason, reply.usage_fields, more)
