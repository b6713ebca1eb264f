"""The budgets of requests that pass through: refused where all is refused, counted at their end."""

from __future__ import annotations

from typing import Any

import orjson

from ..engine.services import Services
from ..engine.session_id import SessionId
from ..settings import PASS_THROUGH
from ..state.store import StoreError
from ..telemetry import accounts
from ..telemetry.metrics import OTHER
from ..wire.chunks import count_of
from ..wire.prompt_size import BYTES_PER_TOKEN
from ..wire.usage import SLACK, Bounds, window_of
from ..wire.usage_tail import UsageTail
from . import budgets
from .budgets import Spent
from .prompt_costs import Measured, measured
from .reservation import Reservation, budgets_unreadable

SECONDS = 3600.0  # that one may take; after them what it has set aside is forgotten
_NO_TIER = ""
_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
_CHOICES = ("n", "best_of")


class PassthroughBooks:
    """One request's. Only a session that is named by a header is known here.

    ``key``: the API key that the client sent. ``uses``: it may use any tokens; ``asks``: by what
    its body says, in JSON; ``writes``: a model writes the reply.
    """

    def __init__(
        self,
        services: Services,
        request_id: str,
        session: SessionId,
        key: str,
        *,
        uses: bool,
        asks: bool,
        writes: bool,
    ) -> None:
        self._services = services
        self._rules = services.settings.reliability.token_budget
        self._paying = None if session.derived else session.budget_hash
        self._limits = budgets.limits_of(self._paying, key, self._rules)
        self._most_output = budgets.most_output(key, _NO_TIER, self._rules)
        self._uses = uses
        self._asks = asks
        self._writes = writes
        self._session = "" if session.derived else session.hash
        self._reservation = Reservation(services, request_id, self._session)
        self._prompt: Measured | None = None  # where its cost matters before
        self._limit = 0  # tokens that its body lets the reply have, where that was read
        self._size = 0  # bytes of the request's body
        self._sent = False  # upstream may have begun with it,
        self._whole = False  # and all that it has to say has come
        self._tail: UsageTail | None = None

    async def admit(self, body: bytes) -> None:
        """Raises :class:`ProxyError` (429) where a budget is used up and ``hard_stop`` is on.

        What uses nothing is always let through.
        """
        if not (self._uses and self._limits and self._rules.policy == "hard_stop"):
            return
        most = 1
        if body and self._asks:
            asked = _asked(body)
            self._prompt = prompt = measured(asked)
            most = self._services.prompt_costs.most(_NO_TIER, self._session, prompt)
            self._limit = _most_written(asked, 0)
            most += self._limit or _most_written(asked, self._most_output)
        try:
            found = await self._reservation.make(
                self._limits, most, SECONDS, partial=True, patience=PASS_THROUGH.queue_timeout
            )
        except StoreError as error:
            accounts.store_failed(self._services, error)
            raise budgets_unreadable() from None
        if found is not None:
            raise self._reservation.refusal_of(found, _NO_TIER).error

    def sent(self, size: int) -> None:
        """Upstream may have all of the request; ``size``: bytes of its body, 0 for none."""
        self._sent = size > 0
        self._size = size

    def read(self, status: int) -> None:
        """A response begins."""
        if status >= 400:
            self._writes = False
        # What only shows a reply again (a GET, say) has not made it.
        if self._limits and self._uses:
            self._tail = UsageTail()

    def feed(self, data: bytes) -> None:
        if self._tail is not None:
            self._tail.feed(data)

    def whole(self) -> None:
        """The response has come to its end."""
        self._whole = True

    async def close(self) -> None:
        """Count what the reply says it used; only the first time."""
        limits, self._limits = self._limits, ()
        if not limits:
            return
        self._learn()
        spent = self._spent()
        if spent.estimated and self._paying is not None:
            limits += (budgets.estimated_in(self._paying),)
        spender = ""
        if spent.total:
            accounts.count_tokens(self._services, OTHER, spent)
            # A session that never asks for a chat completion is to be found all the same.
            spender = self._paying or ""
        amounts = dict.fromkeys(limits, spent.total)
        try:
            await self._reservation.settle(amounts, _NO_TIER, spender=spender)
        except StoreError as error:
            accounts.store_failed(self._services, error)

    def _spent(self) -> Spent:
        """What upstream has counted; of what a model writes else an estimate, never zero."""
        tail = self._tail
        cached = self._rules.count_cached_prompt
        counted = tail.usage(self._bounds(), count_cached=cached) if tail is not None else None
        written = tail.estimated_output() if tail is not None and self._writes else 0
        if counted is not None:
            prompt, output = counted
            if self._whole or not self._writes or written <= output:
                return Spent(prompt, output, estimated=False)
            return Spent(prompt, written, estimated=True)
        disbelieved = tail is not None and tail.disbelieved
        if not (self._sent and (self._writes or disbelieved)):
            return Spent(0, 0, estimated=False)
        return Spent(max(int(self._size / BYTES_PER_TOKEN), 1), written, estimated=True)

    def _bounds(self) -> Bounds:
        """What upstream may say of its tokens. A request for a list of prompts may fill several
        windows, but a token has a byte at least.
        """
        window = window_of(None, self._services.settings)
        return Bounds(max(window, self._size), self._limit + SLACK if self._limit else window)

    def _learn(self) -> None:
        if self._prompt is None or self._tail is None:
            return
        if counted := self._tail.usage(self._bounds()):
            costs = self._services.prompt_costs
            costs.take(_NO_TIER, self._session, self._prompt, counted[0])


def _asked(body: bytes) -> dict[str, Any]:
    """What a request asks; what can't be read is all text."""
    try:
        asked = orjson.loads(body)
    except orjson.JSONDecodeError:
        asked = body.decode("utf-8", "replace")
    return asked if isinstance(asked, dict) else {"prompt": asked}


def _most_written(asked: dict[str, Any], most_output: int) -> int:
    """The tokens of all choices for all prompts, if each goes to its limit."""
    output = max(count_of(asked.get(name)) for name in _LIMITS) or most_output
    prompts = asked.get("prompt")
    # A list of numbers is one prompt in tokens.
    if not isinstance(prompts, list) or not any(isinstance(one, (str, list)) for one in prompts):
        prompts = [prompts]
    return output * len(prompts) * max(1, *(count_of(asked.get(name)) for name in _CHOICES))
