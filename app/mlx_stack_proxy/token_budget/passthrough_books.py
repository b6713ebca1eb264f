"""Token budgets of pass-through requests, such as embeddings.

The proxy doesn't parse their replies, so :class:`PassthroughBooks` observes the bytes and reads the
usage from both ends of the body. Without a usage it estimates what a model has written. Under
``policy: hard_stop`` it reserves tokens before the call, as ``books.py`` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from .. import tasks
from ..engine.session_id import SessionId
from ..engine.spent import TokensUsed
from ..settings import PASS_THROUGH
from ..telemetry import accounts
from ..telemetry.metrics import OTHER
from ..telemetry.shared import Shared
from ..wire.delta import count_of
from ..wire.prompt_size import BYTES_PER_TOKEN
from ..wire.usage import SLACK, Bounds, window_of
from ..wire.usage_tail import UsageTail
from . import budgets
from .reservation import Reservation

SECONDS = 3600.0  # a request's time limit; a minute later its reservation expires
_NO_TIER = ""
_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
_CHOICES = ("n", "best_of")


class PassthroughBooks:
    """The books of one request. Its session is known only if a header names it.

    ``key``: the client's API key. ``uses``: the request may use tokens at all; one that only
    retrieves an earlier reply (a GET, for example) uses none. ``form``: its body is a form, which
    LiteLLM doesn't parse as JSON. ``writes``: a model writes the reply.
    """

    def __init__(
        self,
        services: Shared,
        request_id: str,
        session: SessionId,
        key: str,
        *,
        uses: bool,
        form: bool,
        writes: bool,
    ) -> None:
        self._services = services
        self._rules = rules = services.settings.reliability.token_budget
        self._paying_session = None if session.derived else session.budget_hash
        self._limits = budgets.limits_of(self._paying_session, key, rules) if uses else ()
        self._most_output = budgets.most_output(key, _NO_TIER, rules)
        self._is_form = form
        self._reservation = Reservation(
            services, request_id, "" if session.derived else session.hash
        )
        # The most tokens of all choices by the body's own limit; 0: it has none, or wasn't read.
        self._own_limit = 0
        self._tail = UsageTail()
        self.writes = writes  # reset by the caller if the response is an error
        self.sent = 0  # bytes of a body that upstream may have begun to process
        self.ended = False  # whether the response has ended

    async def admit(self, body: bytes) -> None:
        """Reserve the tokens that the request may use, under ``policy: hard_stop`` only.

        Raises :class:`ProxyError` (429) if they don't fit, or if the store can't be read.
        """
        if not (self._limits and self._rules.policy == "hard_stop"):
            return
        tokens = least = 1
        if body:
            request, tokens = await tasks.aside(body, self._asked, body)
            replies = _replies(request)
            output = max(count_of(request.get(name)) for name in _LIMITS)  # 0: no limit of its own
            self._own_limit = replies * output
            written = replies * (output or self._most_output)
            tokens += written
            least = written if replies > 1 else 1
        refusal = await self._reservation.admit(
            self._limits,
            tokens,
            _NO_TIER,
            least=least,
            seconds=SECONDS,
            patience=PASS_THROUGH.queue_timeout,
        )
        if refusal is not None and refusal.error is not None:
            raise refusal.error

    def _asked(self, body: bytes) -> tuple[Mapping[str, Any], int]:
        """Return a body as an object, and the most tokens that its prompt can cost.

        LiteLLM parses every body as JSON, whatever its content type, unless it is a form. A form
        has one prompt or file, so it fills at most one window.
        """
        if self._is_form:
            return {}, min(len(body), window_of(None, self._services.settings))
        try:
            parsed = orjson.loads(body)
        except orjson.JSONDecodeError:
            return {}, len(body)
        request = parsed if isinstance(parsed, dict) else {"prompt": parsed}
        return request, budgets.most_read(request)

    def feed(self, data: bytes) -> None:
        """Observe bytes of the response's body."""
        if self._limits:
            self._tail.feed(data)

    async def close(self) -> None:
        """Settle the tokens that the request has used; later calls do nothing."""
        limits, self._limits = self._limits, ()
        if not limits:
            return
        spent = self._spent()
        if spent.estimated and self._paying_session is not None:
            limits += (budgets.estimated_in(self._paying_session),)
        spender = ""
        if spent.total:
            accounts.count_tokens(self._services, OTHER, spent.prompt, spent.output)
            # List the session even if it never asks for a chat completion.
            spender = self._paying_session or ""
        amounts = dict.fromkeys(limits, spent.total)
        await self._reservation.settle(amounts, _NO_TIER, spender=spender)

    def _spent(self) -> TokensUsed:
        """Return upstream's count, or an estimate of at least one token if a model has written.

        A count is believed up to one window. A request with a list of prompts may fill several, but
        each token has a byte.
        """
        tail, window = self._tail, window_of(None, self._services.settings)
        output_bound = self._own_limit + SLACK if self._own_limit else window
        bounds = Bounds(max(window, self.sent), output_bound)
        counted = tail.usage(bounds, count_cached=self._rules.count_cached_prompt)
        written = tail.estimated_output() if self.writes else 0
        if counted is not None:
            prompt, output = counted
            broke_off = self.writes and not self.ended and written > output
            return TokensUsed(prompt, written if broke_off else output, estimated=broke_off)
        if not (self.sent and (self.writes or tail.disbelieved)):
            return TokensUsed(0, 0, estimated=False)
        return TokensUsed(max(int(self.sent / BYTES_PER_TOKEN), 1), written, estimated=True)


def _replies(request: Mapping[str, Any]) -> int:
    """Return how many replies a body asks for: choices times prompts."""
    prompts = request.get("prompt")
    # A list of numbers is a single prompt, in tokens.
    if not isinstance(prompts, list) or not any(isinstance(item, (str, list)) for item in prompts):
        prompts = [prompts]
    return len(prompts) * max(1, *(count_of(request.get(name)) for name in _CHOICES))
