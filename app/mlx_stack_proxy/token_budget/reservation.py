"""One request's tokens: set aside before a call, settled after it, told where they cross a line.

Whatever passes on tokens does it with one of these: chat completions, what passes through, the
judge's questions, the calls into the cloud.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from ..engine.services import Services
from ..engine.verdicts import Rejected
from ..errors import ProxyError
from ..state.store import Change, Limit, NotSent, Refused, Settlement, StoreError
from ..telemetry import accounts, log
from . import budgets

SPARE_SECONDS = 60.0  # a reservation outlives its request by this much
TRY_SECONDS = 0.25  # between two tries of one that others' reservations are in the way of


class Reservation:
    """``session``, ``agent``: the hash and the name that its events carry.

    ``held``: the store may have tokens set aside for it. ``waited``: seconds, for others.
    """

    def __init__(self, services: Services, request_id: str, session: str, agent: str = "") -> None:
        self._services = services
        self._id = request_id
        self._session = session
        self._agent = agent
        self._named = ""
        self.held = False
        self.waited = 0.0

    @property
    def _ticket(self) -> str:
        # The request's own id is the client's choice, and two of one id must not share a ticket.
        if not self._named:
            self._named = f"{self._id}:{secrets.token_hex(8)}"
        return self._named

    async def make(
        self,
        limits: Sequence[Limit],
        tokens: int,
        seconds: float,
        *,
        partial: bool = False,
        patience: float = 0.0,
    ) -> Refused | None:
        """Set tokens aside for ``seconds`` at most; the limit that they don't fit into, if any.

        ``partial``: as in :meth:`Store.reserve`. ``patience``: for how many seconds it is tried
        again, where only others' reservations are in the way. Raises ``StoreError``.
        """
        clock = asyncio.get_running_loop().time
        began = clock()
        while True:
            found = await self._reserve(limits, tokens, seconds + SPARE_SECONDS, partial=partial)
            left = began + patience - clock()
            if found is None or not found.waits_for_others or left <= 0:
                return found
            pause = clock()
            await asyncio.sleep(min(left, TRY_SECONDS))
            self.waited += clock() - pause

    async def _reserve(
        self, limits: Sequence[Limit], tokens: int, seconds: float, *, partial: bool
    ) -> Refused | None:
        """Try once; the limit that it doesn't fit into, if any."""
        services = self._services
        now = services.wall_clock()
        # Before the answer: one that nobody waits for any more may have been made all the same.
        self.held = True
        try:
            found = await services.store.reserve(
                self._ticket, limits, tokens, now, now + seconds, partial=partial
            )
        except StoreError as error:
            self.held = False
            if not isinstance(error, NotSent):
                services.background.start(self._release(limits))
            raise
        if not isinstance(found, Refused):
            return None
        self.held = False
        return found

    async def _release(self, limits: Sequence[Limit]) -> None:
        try:
            nothing = Settlement(self._ticket, dict.fromkeys(limits, 0))
            await self._write(nothing)
        except StoreError as error:
            accounts.store_failed(self._services, error)

    def refusal_of(self, found: Refused, tier: str, *, tier_only: bool = False) -> Rejected:
        """What the client is told; kept as an event, once a minute of a session."""
        limit = found.limit
        scope = budgets.scope_name(limit)
        if self._services.rate_limit.allows(("budget_exceeded", self._session, scope)):
            detail = {"scope": scope, "used": found.used, "limit": limit.most}
            self._keep(tier, "budget_exceeded", detail)
        return budgets.refusal(
            limit,
            found.used,
            found.resets_in,
            waited=found.waits_for_others,
            tier_only=tier_only,
        )

    def settlement(self, amounts: Mapping[Limit, int]) -> Settlement | None:
        """What is to be settled now, of the tokens that were used; None if that is nothing."""
        if not self.held and not any(amounts.values()):
            return None
        self.held = False
        return Settlement(self._named, amounts)

    async def settle(
        self, amounts: Mapping[Limit, int], tier: str, *, spender: str = ""
    ) -> Mapping[str, int]:
        """Count what was used, and say what that crosses; each scope's tokens before it.

        ``spender``: the hash of a session that is to be among the sessions from then on. Raises
        ``StoreError``.
        """
        settlement = self.settlement(amounts)
        if settlement is None:
            return {}
        before = await self._write(settlement, spender)
        self.tell(settlement, before, tier)
        return before

    async def _write(self, settlement: Settlement, session: str = "") -> Mapping[str, int]:
        change = Change(session, settlement=settlement)
        return await self._services.store.write(change, self._services.wall_clock())

    def tell(self, settlement: Settlement, before: Mapping[str, int], tier: str) -> None:
        """Say which budgets a settlement has brought to a threshold. ``before``: as the store says.

        The store settles one after the other, so of all that run at once one crosses each line.
        """
        rules = self._services.settings.reliability.token_budget
        beyond = {  # the lower threshold, by now
            limit: tokens
            for limit, tokens in settlement.amounts.items()
            if limit.most
            and limit.scope in before
            and before[limit.scope] + tokens >= rules.warn_at * limit.most
        }
        if not beyond:
            return
        for threshold, kind in ((rules.warn_at, "budget_warning"), (1.0, "budget_exceeded")):
            for limit in budgets.crossed(beyond, before, threshold):
                scope = budgets.scope_name(limit)
                log.get().warning(kind, scope=scope, limit=limit.most)
                detail = {"scope": scope, "limit": limit.most, "threshold": threshold}
                self._keep(tier, kind, detail)

    def _keep(self, tier: str, kind: str, detail: dict[str, Any]) -> None:
        who = (self._id, self._session, self._agent)
        accounts.keep_of(self._services, who, tier, [(kind, detail)])


def budgets_unreadable() -> ProxyError:
    """The refusal of ``policy: hard_stop`` while nobody can tell what is used."""
    message = "the token budgets can't be read now, and policy hard_stop needs them"
    return ProxyError(429, "budget_exceeded", message, extra={"scope": "store"}, retry_after=5)
