"""The proxy as a process: started, looked at from outside, and asked what it counts itself."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import redis
import yaml

from benchmarks import servers
from benchmarks.records import Json
from mlx_stack_proxy import reload
from mlx_stack_proxy.operator import process
from tests.support.ports import free_port
from tests.support.redis_server import RedisServer

MB = 1024 * 1024
CAPTURED_KB = 2_048
CAPTURED = "captured failures (kB)"
SESSIONS = 300
EVENTS = 1_000  # of records there are as many at most
# SQLite uses pages again but returns few, so the file is as large as its rows ever were, with those
# that come between two clearances (30 s). Bytes that a row takes: a session with its tokens about
# 250, and as many are kept again for their tokens alone; an event 600. A record has a body of about
# 1 kB. Empty tables take 64 kB.
STATE_KB = 64 + (250 * 3 * SESSIONS + 600 * 2 * EVENTS + 1_500 * 2 * EVENTS) // 1024
STATE = "state file (kB)"
# The log is as long as what was written between two times that it was moved into the file; after
# 16 MB, and the transaction that comes to that, it is moved at once.
LOG_KB = 17 * 1024
LOG = "its log (kB)"
# Two of a session, of which Redis has at most `redis.STEP` (200) beyond the bound, however many
# come; the rest are the hours, their counters, and what is reserved.
REDIS_KEYS = 2 * (SESSIONS + 200) + 200
KEYS = "Redis' keys"
# A pool starts a thread for a job that finds none free, up to its number; some have one job each.
MOST_THREADS = 1 + process.MOST_THREADS + reload.MAX_HANGING + 6
THREADS = "threads"
KEY, POOR_KEY = "sk-soak-0001", "sk-soak-0002"
SAMPLE = re.compile(r"^(\w+)(?:\{([^}]*)\})? ([0-9.e+-]+)$", re.MULTILINE)


def config(upstream: str, folder: Path, state: Json) -> Json:
    """What is kept is bounded so low that the warm-up fills it."""
    silences = ("first_token_timeout", "idle_timeout", "tool_silence_timeout")
    limits = {"max_concurrency": 16, "queue_timeout": 5, "total_timeout": 20}
    limits |= dict.fromkeys(silences, 3)
    return {
        "server": {"host": "127.0.0.1", "port": free_port(), "api_keys": [KEY, POOR_KEY]},
        "upstream": {"base_url": upstream},
        "stream": {"keepalive_seconds": 1},
        "tiers": {name: {"model": name, **limits} for name in ("fast", "standard")},
        "reliability": {
            "escalation": {
                "chain": ["fast", "standard"],
                "max_retries_before_escalate": 1,
                "exchange_timeout": 15,
                "degrade": {"failures": 5, "cooldown_seconds": 2},
                "sticky_seconds": 5,
            },
            "tool_validation": {"max_retries": 1},
            "loop_detection": {
                "max_sessions": SESSIONS,
                "judge": {"enabled": True, "after_turns": 8},
            },
            "token_budget": {
                "policy": "hard_stop",
                "per_session": 10**9,
                "per_hour": 10**12,
                "session_ttl_seconds": 60,  # Redis keeps all sessions' counts so long
                "per_key": {POOR_KEY: {"per_hour": 2_000}},
            },
            # Its thread looks; what this machine's memory is like decides nothing here.
            "memory_pressure": {
                "interval_seconds": 1,
                "escalate_complex": False,
                "critical_action": "ignore",
            },
        },
        "state": state,
        "observability": {
            "log_level": "warning",
            "log_format": "json",
            "events_max": EVENTS,
            "capture_failures": True,
            "capture_path": str(folder / "failures"),
            "capture_max_bytes": CAPTURED_KB * 1024,
        },
    }


class Proxy:
    """The proxy with settings that change while it runs.

    ``store``: a Redis in place of SQLite. ``wrapper``: a module that runs it instead.
    """

    def __init__(
        self, upstream: str, folder: Path, store: RedisServer | None, wrapper: Sequence[str] = ()
    ) -> None:
        self._asked = redis.Redis(port=store.port) if store else None
        self._state = folder / "state.db"
        self._folder = folder
        self._wrapper = wrapper
        state: Json = {"backend": "sqlite", "path": str(self._state)}
        if store is not None:
            state = {"backend": "redis", "redis_url": store.url}
        self.config = config(upstream, folder, state)
        self.port = self.config["server"]["port"]
        self.url = f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        self.server = servers.serve(self.config, self._folder, wrapper=self._wrapper)

    @property
    def ended(self) -> bool:
        return self.server.process.poll() is not None

    def write(self, settings: Json | str) -> None:
        """Put other settings into its file, as an editor does."""
        part = self._folder / "settings.part"
        part.write_text(settings if isinstance(settings, str) else yaml.safe_dump(settings))
        part.replace(self._folder / f"proxy-{self.port}.yaml")

    def rss(self) -> float:
        """MB."""
        return self.server.rss() / MB

    def taken(self, told: str) -> dict[str, float]:
        """What it takes now, by name. ``told``: its metrics."""
        measured = self.server.measured
        found = {
            "memory (MB)": self.rss(),
            "open files": float(measured.num_fds()),
            "tasks": metric(told, "mlx_stack_tasks"),
            THREADS: float(measured.num_threads()),
        }
        if self._asked is not None:
            found[KEYS] = float(_counted(set(self._asked.scan_iter(count=1_000))))
        else:
            log = Path(f"{self._state}-wal")
            found[STATE] = self._state.stat().st_size / 1024
            found[LOG] = log.stat().st_size / 1024 if log.exists() else 0.0
        captured = sum(one.stat().st_size for one in (self._folder / "failures").glob("*"))
        return {**found, CAPTURED: captured / 1024}


def _counted(keys: set[bytes]) -> int:
    """How many of Redis' keys are no such as end by themselves, however many come.

    A call's mark stays for ten minutes, whatever came of it. A purse whose session is gone stays
    for `session_ttl_seconds` and an hour: the session was evicted, or refused by a Redis that was
    demoted just after the tokens.
    """
    marks = [key for key in keys if b":o:" in key]
    purses = [key for key in keys if b":p:session:" in key]
    left = [key for key in purses if key.replace(b":p:session:", b":s:") not in keys]
    return len(keys) - len(marks) - len(left)


def metric(text: str, name: str) -> float:
    """The sum of a metric's samples; 0 where there is none."""
    return sum(float(value) for found, _, value in SAMPLE.findall(text) if found == name)


def by_label(text: str, name: str, label: str) -> dict[str, float]:
    """A metric's sums by the values of one of its labels."""
    found: dict[str, float] = {}
    for metric_name, labels, value in SAMPLE.findall(text):
        if metric_name == name and (said := re.search(rf'\b{label}="([^"]*)"', labels)):
            found[said[1]] = found.get(said[1], 0.0) + float(value)
    return found
