"""Make the parts of the proxy from the settings, and connect them: begin to read here.

:func:`build_services` makes every part that outlives a request, in one ``Services``, and
``_connect`` lets them call one another; :func:`build_app` makes the FastAPI app with its routes
(``server/app.py``), whose lifespan opens and closes the parts (:func:`opened`).
:func:`change` replaces, in a running process, the parts that depend on settings that may change
without a restart.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from . import log, stages, state
from .driver.services import Services, upstream_key
from .engine.model_list import ModelList
from .engine.upstream import Upstream
from .escalation.cloud import Cloud, cloud_key
from .escalation.recovery import Recovery
from .escalation.tier_queue import TierQueues
from .escalation.tier_states import TierStates
from .memory_pressure.pressure import Level, Pressure
from .memory_pressure.probe import MemoryProbe
from .memory_pressure.readers import open_reader
from .server import app, lifetime
from .server.app import ProxyApp
from .server.notifications import Notifier
from .settings import Settings
from .settings_source import SettingsError
from .state.store import StoreError
from .telemetry import accounts
from .telemetry.failure_capture import FailureCapture
from .telemetry.journal import Journal
from .telemetry.metrics import Metrics

if TYPE_CHECKING:
    from .telemetry.traces import Traces


def build_app(services: Services) -> ProxyApp:
    """Return the FastAPI app with all its routes; its lifespan is :func:`opened`."""
    return app.build(services, lambda _: opened(services))


def build_services(
    settings: Settings,
    wall_clock: Callable[[], float] = time.time,
    memory: MemoryProbe | None = None,
    upstream: Upstream | None = None,
) -> Services:
    """Make and connect all parts of the proxy, without opening any. Raises :class:`SettingsError`.

    ``wall_clock`` gives seconds since the epoch, for times that are stored. ``memory`` replaces
    this machine's memory probe in tests. ``upstream`` replaces the HTTP connection to LiteLLM
    where the proxy runs inside LiteLLM.
    """
    upstream = upstream or Upstream(settings.upstream)
    queues = TierQueues(settings.tiers)
    store = state.open_store(settings, wall_clock)
    journal = Journal(store, wall_clock)
    tier_states = TierStates(settings, store, journal, wall_clock)
    rules = settings.reliability.memory_pressure
    if memory is None:
        reader = open_reader(rules.source) if rules.enabled else None
        memory = MemoryProbe(rules, reader, time.monotonic)
    services = Services(
        settings=settings,
        upstream=upstream,
        models=ModelList(upstream, upstream_key(settings), time.monotonic),
        queues=queues,
        stages=stages.build(settings),
        store=store,
        journal=journal,
        tier_states=tier_states,
        recovery=Recovery(settings, upstream, tier_states),
        cloud=_cloud(settings),
        memory=memory,
        metrics=Metrics(queues.readings, tier_states.degraded, lambda: memory.level),
        wall_clock=wall_clock,
    )
    _connect(services)
    return services


def _connect(services: Services) -> None:
    """Register the parts' callbacks; add the optional parts that the settings turn on."""
    settings, journal = services.settings, services.journal
    journal.on_failure = partial(accounts.store_failed, services)
    services.store.health.on_change = partial(accounts.store_changed, services)
    callbacks = partial(lifetime.upstream_down, services), partial(lifetime.upstream_up, services)
    services.upstream.reach.watch(*callbacks)
    services.capture = _capture(services)
    if services.capture is not None:
        services.observers = (*services.observers, services.capture.of)
    notify = settings.observability.notify
    if notify.url is not None:
        services.notifier = Notifier(notify, notify.url)
    if settings.observability.traces:
        services.traces = _traces(settings)
        services.observers = (*services.observers, services.traces.of)
    # Prometheus sees no increase, and so raises no alert, if a counter first appears as 1.
    optional = [part.name for part in (services.capture, services.traces) if part is not None]
    for name in (*(stage.name for stage in services.stages), *_PARTS, *optional):
        services.metrics.count("stage_faults", name, by=0)
    services.memory.on_change = partial(_pressure_changed, services)


# Parts other than the stages whose faults are counted, whatever the settings are.
_PARTS = ("books", "text_hold")


def _traces(settings: Settings) -> Traces:
    try:
        from .telemetry.traces import Traces as OpenTelemetry
    except ImportError as error:
        problem = (
            f"observability.traces: {error.name} is not installed; "
            "install the extra `otel` (from a checkout: pip install '.[otel]')"
        )
        raise SettingsError([problem], "settings") from None
    return OpenTelemetry(settings)


def _capture(services: Services) -> FailureCapture | None:
    settings = services.settings
    rules = settings.observability
    if not rules.capture_failures:
        return None
    cloud = settings.reliability.escalation.cloud_fallback
    keys = [*settings.server.api_keys, settings.server.admin_key, upstream_key(settings)]
    keys.append(os.environ.get(cloud.api_key_env) if cloud is not None else None)
    return FailureCapture(
        rules.capture_path,
        rules.capture_max_bytes,
        [key for key in keys if key],
        lambda part: services.metrics.count("stage_faults", part),
    )


async def _pressure_changed(services: Services, before: Pressure, after: Pressure) -> None:
    """Shed or restore local tiers' slots, count how long the old level lasted, keep an event."""
    _shed(services)
    now, since = services.wall_clock(), services.life.pressure_since
    services.life.pressure_since = now
    if before.level is not Level.NORMAL:
        seconds = round(max(0.0, now - since), 1)
        accounts.count_alone(services, {f"pressure_{before.level.word}_seconds": seconds})
    detail = {"from": before.level.word, "to": after.level.word}
    accounts.record_event(
        services, "pressure_changed", {**detail, "cause": after.cause or before.cause}
    )


def _shed(services: Services) -> None:
    """Let local tiers take one request at a time while memory is critical, if so configured."""
    action = services.settings.reliability.memory_pressure.critical_action
    critical = services.memory.pressure.level is Level.CRITICAL
    services.queues.shed(critical and action == "shed")


def _cloud(settings: Settings) -> Cloud | None:
    fallback = settings.reliability.escalation.cloud_fallback
    if fallback is None or not fallback.enabled or not settings.reliability.escalation.cloud:
        return None
    if cloud_key(fallback) is None:
        log.get().warning(
            "cloud_without_key",
            variable=fallback.api_key_env,
            effect="no direct calls; cloud tiers that LiteLLM lists are called through it",
        )
    cap = fallback.max_tokens_per_hour
    log.get().info(
        "cloud", provider=fallback.provider, model=fallback.model, max_tokens_per_hour=cap
    )
    return Cloud(fallback)


def change(services: Services, settings: Settings) -> None:
    """Replace the settings of a running proxy: new exchanges use them, running ones the old.

    The caller (``reload.py``) makes sure that no key of ``AT_START`` differs.
    """
    old = services.settings
    new_stages = stages.build(settings, services.stages)
    cloud = services.cloud
    before, after = old.reliability.escalation, settings.reliability.escalation
    if (before.cloud, before.cloud_fallback) != (after.cloud, after.cloud_fallback):
        cloud = _cloud(settings)
        services.retired += [services.cloud] if services.cloud is not None else []
    services.queues.adapt(settings.tiers)
    services.tier_states.adapt(settings)
    services.recovery.adapt(settings)
    services.change(settings, new_stages, cloud)
    _shed(services)
    if old.observability != settings.observability:
        log.configure(settings.observability)


def note_reload(services: Services, kind: str, detail: dict[str, list[str]]) -> None:
    """Remember how the last reading of the settings went, for ``status``; keep an event of it.

    ``kind`` is ``config_refused`` (with ``problems`` in ``detail``) or ``config_reloaded`` (with
    ``keys`` and ``restart``). A reload that changed nothing keeps no event.
    """
    life = services.life
    if kind == "config_refused":
        life.bad_settings = detail["problems"]
    else:
        unchanged = not detail["keys"] and detail["restart"] == life.restart_due
        life.bad_settings, life.restart_due = [], detail["restart"]
        if unchanged:
            return
    accounts.record_event(services, kind, detail)


@asynccontextmanager
async def opened(services: Services) -> AsyncIterator[None]:
    """Open the store, the probes and the optional parts; close them all at the end.

    The proxy starts even if the store's content can't be read.
    """
    await services.store.open()
    try:
        await services.tier_states.restore()
        services.recovery.watch_all()
    except StoreError as error:
        accounts.store_failed(services, error)
    services.memory.start()
    if services.notifier is not None:
        services.notifier.start(services)
    if services.capture is not None:
        services.capture.start()
    try:
        yield
    finally:
        await services.memory.close()
        if services.notifier is not None:
            await services.notifier.close()
        await services.recovery.close()
        await services.background.close()
        await services.upstream.aclose()
        for cloud in (services.cloud, *services.retired):
            if cloud is not None:
                await cloud.upstream.aclose()
        if services.capture is not None:
            await services.capture.close()
        if services.traces is not None:
            await services.traces.close()
        await services.journal.written()
        await services.store.close()
