"""Looks at the chat templates of model servers on this machine, where a server shows its own.

llama.cpp's server does, under ``/props``. Its address comes from LiteLLM's ``/v1/model/info``.
"""

from __future__ import annotations

import asyncio
from typing import Any

import orjson

from ..engine.upstream import Upstream, UpstreamError
from ..settings import UpstreamSettings, is_loopback
from ..tool_validation.formats.json_calls import DOUBLED
from .init.model_groups import Groups, host_of

_SECONDS = 5.0


async def shows_doubled_braces(groups: Groups, model: str) -> bool:
    """Whether a server of this LiteLLM model has a template that writes a call as ``{{"name"``."""
    group = groups.get(model)
    bases = [one.api_base or "" for one in (group.deployments if group is not None else ())]
    templates = [await _template(base) for base in bases if is_loopback(host_of(base))]
    return any(DOUBLED.search(template) for template in templates)


async def _template(api_base: str) -> str:
    """Return the server's chat template; "" if it shows none. No key is sent."""
    server = Upstream(UpstreamSettings(base_url=api_base.rstrip("/").removesuffix("/v1")))
    try:
        async with asyncio.timeout(_SECONDS):
            _, body = await server.fetch("GET", "/props", [])
        answer: Any = orjson.loads(body)
    except (UpstreamError, TimeoutError, ValueError):
        return ""
    finally:
        await server.aclose()
    template = answer.get("chat_template") if isinstance(answer, dict) else None
    return template if isinstance(template, str) else ""
