"""What a running proxy says of itself to the commands: a server that answers as it does."""

from __future__ import annotations

from typing import Any

from tests.support.scripted_server import Reply, ScriptedServer

Json = dict[str, Any]
TIERS = {
    "fast": {"model": "fast", "local": True, "context_window": 8192},
    "big": {"model": "big", "local": True, "context_window": 131_072},
    "cloud": {"model": "cloud", "local": False, "context_window": 1_000_000},
}
CLIENTS = {
    "key": "any",
    "key_needed": False,
    "aliases": {"claude-opus-*": "big"},
    "max_output_tokens": 16_384,
}


def status(tiers: Json | None = None, **clients: Any) -> Json:
    tiers = tiers or TIERS
    return {"tiers": tiers, "chain": list(tiers), "clients": {**CLIENTS, **clients}}


def running(server: ScriptedServer, tiers: Json | None = None, **clients: Any) -> str:
    """Let the server answer as a proxy with these tiers; its address."""
    server.routes["GET", "/mlx-stack/status"] = Reply.json(status(tiers, **clients))
    return server.url
