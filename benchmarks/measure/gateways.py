"""How each gateway of ``beside`` is started: told to retry and to fall back, where it can be."""

from __future__ import annotations

import json
import secrets
import sys
from pathlib import Path
from typing import Any

import yaml

from benchmarks.cost import contestants
from benchmarks.cost.contestants import CRUXIAL, FOREIGN, INSTALL, TOOLRAILS, Missing
from benchmarks.measure import load, servers
from benchmarks.measure.servers import Server
from tests.support.ports import free_port

Json = dict[str, Any]
NAMES = (
    contestants.LITELLM,
    contestants.PORTKEY,
    contestants.FORGE,
    TOOLRAILS,
    CRUXIAL,
    contestants.PROXY,
)


def litellm(upstream: int, folder: Path) -> Server:
    """With two retries and a second model to fall back to."""
    address = f"http://127.0.0.1:{upstream}/v1"
    key = secrets.token_hex(16)
    models = [
        {
            "model_name": name,
            "litellm_params": {"model": f"openai/{name}", "api_base": address, "api_key": key},
        }
        for name in ("fast", "standard")
    ]
    config = {
        "model_list": models,
        "router_settings": {"num_retries": 2, "disable_cooldowns": True},
        "litellm_settings": {"telemetry": False, "fallbacks": [{"fast": ["standard"]}]},
    }
    port = free_port()
    file = folder / "litellm.yaml"
    file.write_text(yaml.safe_dump(config))
    program = str(Path(sys.executable).parent / "litellm")
    argv = [program, "--config", str(file), "--host", "127.0.0.1", "--port", str(port)]
    settings = {"LITELLM_MASTER_KEY": load.KEY, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    server = servers.start(contestants.LITELLM, port, argv, folder, **settings)
    server.wait_ready("/health/liveliness", 180)
    return server


def portkey_config(upstream: int) -> str:
    """With two retries and a second model to fall back to."""
    targets = [
        {
            "provider": "openai",
            "api_key": "sk-local",
            "custom_host": f"http://127.0.0.1:{upstream}/v1",
            "retry": {"attempts": 2},
            "override_params": {"model": name},
        }
        for name in ("fast", "standard")
    ]
    return json.dumps({"strategy": {"mode": "fallback"}, "targets": targets})


def toolrails(upstream: int, folder: Path) -> Server:
    """Its upstream speaks both APIs of Ollama: OpenAI's form, and `/api/chat` with a `format`."""
    program = _program(TOOLRAILS, TOOLRAILS)
    port = free_port()
    argv = [program, "--ollama", f"http://127.0.0.1:{upstream}", "--port", str(port)]
    server = servers.start(TOOLRAILS, port, argv, folder)
    server.wait_ready("/health", 60)
    return server


def cruxial(upstream: int, folder: Path) -> Server:
    """A library: a small app of ours serves what `cruxial.run` makes of a request."""
    program = _program(CRUXIAL, "python")
    port = free_port()
    app = str(Path(__file__).with_name("cruxial_app.py"))
    argv = [program, app, f"http://127.0.0.1:{upstream}/v1", str(port)]
    database = str(folder / "cruxial.sqlite")
    server = servers.start(CRUXIAL, port, argv, folder, CRUXIAL_DB_PATH=database)
    server.wait_ready("/health", 60)
    return server


def _program(folder: str, name: str) -> str:
    program = FOREIGN / folder / "bin" / name
    if not program.exists():
        raise Missing(f"not installed ({INSTALL})")
    return str(program)


def started(name: str, upstream: int, folder: Path) -> tuple[Server, Json]:
    """The server, and the headers that its clients send."""
    headers = {"authorization": f"Bearer {load.KEY}"}
    if name == contestants.LITELLM:
        return litellm(upstream, folder), headers
    if name == contestants.PORTKEY:
        return contestants.portkey(upstream, folder), {"x-portkey-config": portkey_config(upstream)}
    if name == contestants.FORGE:
        return contestants.forge(upstream, folder), {}
    if name == TOOLRAILS:
        return toolrails(upstream, folder), {}
    if name == CRUXIAL:
        return cruxial(upstream, folder), {}
    return servers.start_proxy(upstream, folder), headers
