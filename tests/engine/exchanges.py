"""Builders of exchanges, requests, attempts and replies for the engine's tests."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Any

from hypothesis import strategies as st
from msgspec.structs import replace

from mlx_stack_proxy.engine.attempt import Attempt
from mlx_stack_proxy.engine.exchange import Exchange, SessionStart
from mlx_stack_proxy.engine.outcome import Outcome, Remarks
from mlx_stack_proxy.engine.pipeline import Stage
from mlx_stack_proxy.engine.request import Controls, Request, Route, UpstreamRequest
from mlx_stack_proxy.engine.session_id import SessionId
from mlx_stack_proxy.engine.steps import Retry
from mlx_stack_proxy.engine.verdicts import Verdict

Json = dict[str, Any]
USER = {"role": "user", "content": "hello"}
SESSION = SessionId("derived", "0" * 32, "0" * 32)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False) | st.text("ab "),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab"), inner, max_size=3),
    max_leaves=8,
)
NAMES = (
    "choices delta message index finish_reason content role refusal reasoning reasoning_content "
    "thinking tool_calls function_call function name arguments id usage prompt_tokens error code "
    "prompt_tokens_details cached_tokens text type"
)
# The right names with anything under them: what a confused server might send.
ODD = st.recursive(
    JSON,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(NAMES.split()), inner, max_size=4)
    ),
    max_leaves=12,
)


def client_request(
    *,
    stream: bool = True,
    include_usage: bool = True,
    legacy_functions: bool = False,
    size: int = 0,
    **body: Any,
) -> Request:
    whole = {"messages": [USER], **body}
    return Request(
        body=whole,
        model=body.get("model") or "",
        stream=stream,
        include_usage=include_usage,
        legacy_functions=legacy_functions,
        size=size,
    )


def exchange(
    request: Request | None = None,
    *,
    controls: Controls | None = None,
    tiers: tuple[str, ...] = ("fast", "standard"),
    route: Route | None = None,
    session: SessionId = SESSION,
    began: SessionStart | None = None,
    **who: Any,
) -> Exchange:
    """One that has only begun. ``who``: more fields of the request."""
    asked = copy.copy(request or client_request()).with_caller(
        session=session,
        route=route or Route(tiers),
        controls=controls or Controls(),
        **{"id": "req-1", **who},
    )
    return Exchange(asked, session_start=began)


def note(whole: Exchange, remarks: Remarks) -> None:
    """Let the exchange have what a stage has said, as it has after an attempt."""
    whole.outcomes.append(Outcome(whole.tier, called=False, remarks=remarks))


def asked_again(whole: Exchange, failure: Verdict | None) -> Exchange:
    """The same while one more attempt runs after a failure of the model's."""
    whole.outcomes.append(Outcome(whole.tier, failure))
    whole.steps.append(Retry("", 1))
    return whole


def incidents(whole: Exchange) -> list[tuple[str, tuple[str, ...]]]:
    """The kinds and labels of all that stages have reported."""
    found = [one for outcome in whole.outcomes for one in outcome.remarks.incidents]
    return [(one.kind, one.labels) for one in found]


class Faults(list[tuple[str, Exception]]):
    """Collects what a pipeline reports."""

    def __call__(self, stage: str, error: Exception) -> None:
        self.append((stage, error))


def attempt(
    whole: Exchange | None = None,
    *,
    stages: Sequence[Stage] = (),
    faults: Faults | None = None,
    hold_whole: bool = False,
) -> Attempt:
    whole = whole or exchange()
    if hold_whole:
        controls = replace(whole.request.controls, stream="buffered")
        whole.request = copy.copy(whole.request).with_caller(controls=controls)
    return Attempt(
        whole,
        UpstreamRequest(whole.tier, dict(whole.request.body)),
        stages,
        faults if faults is not None else Faults(),
    )


def relayed(one: Attempt, pieces: Iterable[bytes]) -> bytes:
    """What a client gets of a stream that arrives in these pieces and is accepted."""
    out = bytearray()
    for piece in pieces:
        if one.over:
            break
        out += one.feed(piece)
    if not one.over:
        out += one.end()
    if one.verdict is None:
        assert one.settle() is None
        out += one.rest()
    return bytes(out)


def completion_of(stream: bytes, **asked: Any) -> Json:
    """The completion that the chunks of a whole stream make."""
    one = attempt(exchange(client_request(stream=False, **asked)))
    one.feed(stream)
    assert one.settle() is None
    return one.completion()


def cut(whole: bytes, cuts: Iterable[int]) -> list[bytes]:
    """`whole` in pieces that end at these places."""
    places = sorted({at for at in cuts if 0 < at < len(whole)})
    return [whole[a:b] for a, b in zip([0, *places], [*places, len(whole)], strict=True)]


@st.composite
def splits(draw: st.DrawFn, wholes: st.SearchStrategy[bytes]) -> tuple[bytes, list[bytes]]:
    """Some bytes, and the same bytes in pieces."""
    whole = draw(wholes)
    if draw(st.booleans()):  # byte by byte is the hardest, and rare by chance
        return whole, [whole[at : at + 1] for at in range(len(whole))]
    cuts = draw(st.lists(st.integers(0, max(1, len(whole))), max_size=30))
    return whole, cut(whole, cuts)
