"""Reports events to an operator by a POST to a webhook (docs/observability.md#notifications).

The body is JSON with ``text``, which Slack and most webhooks show; the headers have ntfy read the
same body, and other webhooks ignore them. The first event of a kind is sent at once. Further ones
within five minutes are counted, and one message gives their number. Each process sends its own
events. Of the processes that share a store, the first to reserve it sends the daily report, which
is about all of them. No message holds a prompt, reply, key or address.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import orjson

from .. import log, tasks
from ..driver.services import Services
from ..engine.headers import RawHeaders
from ..engine.upstream import Upstream, UpstreamError
from ..settings import NotifySettings, UpstreamSettings
from ..state.store import Limit, Reserved
from ..telemetry.report import ReportScope
from ..telemetry.report_words import some
from .kept import report_of

QUIET_SECONDS: Final = 300.0  # after a message, for further events of its kind
ANSWER_SECONDS: Final = 10.0  # how long the webhook's answer may take
RETRY_SECONDS: Final = 5.0
NIGHT_SECONDS: Final = 12 * 3600.0  # how far back the report goes
FIRST_SECONDS: Final = 3600.0  # how long no other process sends the report
MAX_CHARACTERS: Final = 3500  # of a text: ntfy takes 4096 bytes
_HEADERS: RawHeaders = [
    (b"content-type", b"application/json"),
    (b"x-template", b"yes"),
    (b"x-title", b"{{.title}}"),
    (b"x-message", b"{{.text}}"),
]

Event = Mapping[str, Any]


class Notifier:
    """Sends the messages of one process. ``clock``: monotonic seconds."""

    def __init__(
        self, settings: NotifySettings, url: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._kinds = settings.on  # kinds of events, and "report"
        self._report_at = settings.report_at
        parts = urlsplit(url)
        self._upstream = Upstream(UpstreamSettings(base_url=f"{parts.scheme}://{parts.netloc}"))
        self._target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._clock = clock
        self._quiet_until: dict[str, float] = {}  # by kind, on the clock
        self._waiting: dict[str, int] = {}  # events that wait for a message, by kind
        self._background = tasks.Background()
        self._nightly: asyncio.Task[None] | None = None

    def start(self, services: Services) -> None:
        if "report" in self._kinds:
            self._nightly = asyncio.create_task(self._each_morning(services))

    async def close(self) -> None:
        await tasks.end(self._nightly)
        await self._background.close()
        await self._upstream.aclose()

    def on_event(self, event: Event) -> None:
        """Send an event, or count it if its kind is quiet now."""
        kind = event["kind"]
        if kind not in self._kinds:
            return
        now = self._clock()
        if now < self._quiet_until.get(kind, now):
            self._waiting[kind] = self._waiting.get(kind, 0) + 1
            return
        self._quiet_until[kind] = now + QUIET_SECONDS
        self._background.start(self._announce(kind, *words(event)))

    async def _announce(self, kind: str, title: str, text: str) -> None:
        await self._post(kind, title, text)
        await asyncio.sleep(max(0.0, self._quiet_until[kind] - self._clock()))
        count = self._waiting.pop(kind, 0)
        if count:
            self._quiet_until[kind] = self._clock() + QUIET_SECONDS
            sentence = f"{count:,} more in {QUIET_SECONDS / 60:.0f} minutes: mlx-stack-proxy events"
            self._background.start(self._announce(kind, title, f"{sentence} --kind {kind}"))

    async def _post(self, kind: str, title: str, text: str) -> None:
        """Send one message; if that fails, try once more, then log why."""
        body = orjson.dumps({"title": title, "text": text[:MAX_CHARACTERS], "kind": kind})
        for pause in (RETRY_SECONDS, 0.0):
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    response = await self._upstream.send("POST", self._target, _HEADERS, body)
                    await response.aclose()
                if response.status < 400:
                    return
                problem = f"status {response.status}"
            except (UpstreamError, TimeoutError) as error:
                problem = str(error) or "no answer in time"
            await asyncio.sleep(pause)
        log.get().warning("notify_failed", kind=kind, why=problem)

    async def _each_morning(self, services: Services) -> None:
        while True:
            now = time.time()
            await asyncio.sleep(next_at(now, self._report_at) - now)
            try:
                if not await _is_first(services):
                    continue
                until = services.wall_clock()
                report = await report_of(services, ReportScope(until - NIGHT_SECONDS, until))
                lines = [line for part in report["said"] for line in part["lines"]]
                lines += [item["says"] for item in report["advice"]]
                await self._post("report", "The last 12 hours", "\n".join(lines))
            except Exception as error:
                log.fault("notify_fault", error)


async def _is_first(services: Services) -> bool:
    """Whether this process is the first on its store to send today's report.

    The processes try to reserve a budget of one token, and only the first gets it. The reservation
    is never spent, and expires after an hour: the machines' clocks differ by less.
    """
    now = services.wall_clock()
    limit = Limit("report", 1, rolling=True)
    reservation = await services.store.reserve(
        f"report:{secrets.token_hex(8)}", [limit], 1, now, now + FIRST_SECONDS
    )
    return isinstance(reservation, Reserved)


def next_at(now: float, time_of_day: str) -> float:
    """Return when ``time_of_day`` (HH:MM, this machine's time zone) comes next after ``now``.

    Both times are in seconds since the epoch.
    """
    hour, minute = map(int, time_of_day.split(":"))
    today = time.localtime(now)
    for days in (0, 1):
        candidate = time.mktime((*today[:2], today.tm_mday + days, hour, minute, 0, 0, 0, -1))
        if candidate > now:
            return candidate
    return now + 86_400


def words(event: Event) -> tuple[str, str]:
    """Return the title and the text of an event's message."""
    kind, detail = str(event["kind"]), event["detail"]
    agent, request = event.get("agent") or "unnamed", event.get("request_id")
    match kind:
        case "exhausted":
            tries = some(len(detail.get("attempts") or ()), "attempt")
            text = f"{agent}: {detail.get('type')} after {tries}: mlx-stack-proxy why {request}"
            return "A request failed", text
        case "upstream_down":
            return "LiteLLM is out of reach", f"LiteLLM is out of reach: {detail.get('why')}"
        case "store_down":
            kept = "what is counted stays in memory until it works again"
            return "The store fails", f"The store fails; {kept}: mlx-stack-proxy status"
        case "budget_exceeded":
            limit = f"{detail.get('limit') or 0:,}"
            text = f"{agent}: the token budget ({detail.get('scope')}, {limit} tokens) is used up"
            command = f"mlx-stack-proxy events --request {request}"
            return "A token budget is used up", f"{text}: {command}"
    return kind, kind
