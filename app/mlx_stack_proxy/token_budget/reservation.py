"""One request's tokens: reserved before a call, settled after it, reported at thresholds.

A :class:`Reservation` asks the store to reserve tokens in several budgets at once. While other
requests' reservations are in the way it tries again, four times a second, for as long as it may
wait. After the call a settlement replaces the reservation by the tokens really used, and each
threshold that they cross becomes an event. Chat completions, pass-through requests, questions to
the judge and calls into the cloud all use it.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from .. import log
from ..engine.verdicts import Failure, rejected
from ..errors import ProxyError
from ..state.store import Change, Limit, NotSent, ReservationRefused, Settlement, StoreError
from ..telemetry import accounts
from ..telemetry.shared import Shared
from . import budgets

SPARE_SECONDS = 60.0  # a reservation expires this long after its request must have ended
TRY_SECONDS = 0.25  # between two tries while others' reservations are in the way


class Reservation:
    """The tokens that the store reserves for one request, one set of them at a time.

    ``session``: the session's hash, ``agent``: the agent's name; both appear in its events.
    """

    def __init__(self, services: Shared, request_id: str, session: str, agent: str = "") -> None:
        self._services = services
        self._id = request_id
        self._session = session
        self._agent = agent
        self._made_ticket = ""  # created when needed
        self.held = False  # the store may have tokens reserved under the ticket
        self.waited = 0.0  # seconds spent waiting for others' reservations

    @property
    def _ticket(self) -> str:
        # Clients choose request ids, and two requests with one id must not share a ticket.
        if not self._made_ticket:
            self._made_ticket = f"{self._id}:{secrets.token_hex(8)}"
        return self._made_ticket

    async def admit(
        self,
        limits: Sequence[Limit],
        tokens: int,
        tier: str,
        *,
        least: int = 1,
        own: Sequence[Limit] = (),
        seconds: float,
        patience: float,
    ) -> Failure | None:
        """Reserve under ``policy: hard_stop``; return the refusal, also if the store can't be read.

        ``own``: the limits that are the tier's own. For the rest see :meth:`make`.
        """
        try:
            refused = await self.make(limits, tokens, seconds, least=least, patience=patience)
        except StoreError as error:
            accounts.store_failed(self._services, error)
            message = "the token budgets can't be read now, and policy hard_stop needs them"
            extra = {"scope": "store"}
            return rejected(ProxyError(429, "budget_exceeded", message, extra=extra, retry_after=5))
        if refused is None:
            return None
        return self.refusal_of(refused, tier, tier_only=refused.limit in own)

    async def make(
        self,
        limits: Sequence[Limit],
        tokens: int,
        seconds: float,
        *,
        least: int | None = None,
        patience: float = 0.0,
    ) -> ReservationRefused | None:
        """Reserve tokens in all limits or in none; return the limit that refuses them, if any.

        ``seconds``: how long the request may take; the reservation expires a minute later.
        ``least``: see :meth:`Store.reserve`. ``patience``: how many seconds to retry while only
        others' reservations are in the way. Raises ``StoreError``.
        """
        clock = asyncio.get_running_loop().time
        began = clock()
        while True:
            refused = await self._reserve(limits, tokens, seconds + SPARE_SECONDS, least)
            remaining = began + patience - clock()
            if refused is None or not refused.waits_for_others or remaining <= 0:
                return refused
            pause = clock()
            await asyncio.sleep(min(remaining, TRY_SECONDS))
            self.waited += clock() - pause

    async def _reserve(
        self, limits: Sequence[Limit], tokens: int, seconds: float, least: int | None
    ) -> ReservationRefused | None:
        """Try once; return the limit that refuses the tokens, if any. Raises ``StoreError``."""
        services = self._services
        now = services.wall_clock()
        # Set before the store answers: if this task is cancelled during the call, the store may
        # still make the reservation, which then has to be settled.
        self.held = True
        try:
            refused = await services.store.reserve(
                self._ticket, limits, tokens, now, now + seconds, least=least
            )
        except StoreError as error:
            self.held = False
            if not isinstance(error, NotSent):
                nothing = Settlement(self._ticket, dict.fromkeys(limits, 0))
                services.background.start(self._write(nothing))
            raise
        if not isinstance(refused, ReservationRefused):
            return None
        self.held = False
        return refused

    def refusal_of(
        self, refused: ReservationRefused, tier: str, *, tier_only: bool = False
    ) -> Failure:
        """Return the client's error, and store it as an event at most once a minute.

        The event is limited for each session and kind of budget. ``tier_only``: the budget is one
        tier's own, so another tier may take the request.
        """
        limit = refused.limit
        scope = budgets.scope_name(limit)
        if self._services.rate_limit.allows(("budget_exceeded", self._session, scope)):
            detail = {"scope": scope, "used": refused.used, "limit": limit.most}
            self._record(tier, "budget_exceeded", detail)
        return budgets.refusal(
            limit,
            refused.used,
            refused.resets_in,
            waited=refused.waits_for_others,
            tier_only=tier_only,
        )

    def settlement(self, amounts: Mapping[Limit, int]) -> Settlement | None:
        """Return the settlement of the used tokens; None if none were used and none are held."""
        if not self.held and not any(amounts.values()):
            return None
        self.held = False
        return Settlement(self._made_ticket, amounts)

    async def settle(
        self, amounts: Mapping[Limit, int], tier: str, *, spender: str = ""
    ) -> Mapping[str, int]:
        """Settle the used tokens and report crossed thresholds; return each scope's tokens before.

        ``amounts``: used tokens by limit. ``spender``: the hash of a session that the store lists
        from then on. If the store fails, nothing is reported or returned.
        """
        settlement = self.settlement(amounts)
        if settlement is None:
            return {}
        tokens_before = await self._write(settlement, spender)
        self.note_thresholds(settlement, tokens_before, tier)
        return tokens_before

    async def _write(self, settlement: Settlement, session: str = "") -> Mapping[str, int]:
        change = Change(session, settlement=settlement)
        try:
            return await self._services.store.write(change, self._services.wall_clock())
        except StoreError as error:
            accounts.store_failed(self._services, error)
            return {}

    def note_thresholds(
        self, settlement: Settlement, tokens_before: Mapping[str, int], tier: str
    ) -> None:
        """Log and keep an event for each threshold that a settlement has crossed.

        ``tokens_before``: each scope's tokens before the settlement, from the store. The store
        settles one request after the other, so only one of parallel requests crosses a threshold.
        """
        rules = self._services.settings.reliability.token_budget
        beyond = {  # limits that are now above the lower threshold
            limit: tokens
            for limit, tokens in settlement.amounts.items()
            if limit.most
            and limit.scope in tokens_before
            and tokens_before[limit.scope] + tokens >= rules.warn_at * limit.most
        }
        if not beyond:
            return
        for threshold, kind in ((rules.warn_at, "budget_warning"), (1.0, "budget_exceeded")):
            for limit in budgets.crossed(beyond, tokens_before, threshold):
                scope = budgets.scope_name(limit)
                log.get().warning(kind, scope=scope, limit=limit.most)
                detail = {"scope": scope, "limit": limit.most, "threshold": threshold}
                self._record(tier, kind, detail)

    def _record(self, tier: str, kind: str, detail: dict[str, Any]) -> None:
        requester = accounts.Requester(self._id, self._session, self._agent, tier)
        accounts.record_event(self._services, kind, detail, requester)
