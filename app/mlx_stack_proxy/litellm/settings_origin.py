"""Reads the settings of a layer inside LiteLLM: the proxy's own file, without LiteLLM's part.

``MLX_STACK_CONFIG`` names the file; the default is ``config.yaml`` next to LiteLLM's file. A key
without effect inside LiteLLM is refused at the start.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from ..reload import SettingsOrigin
from ..settings import ServerSettings, Settings, UpstreamSettings
from ..settings_source import DEFAULT_FILE, SettingsError, Sources, find_file

# Keys that must keep their default, and why.
_REFUSED = {
    ("server", "api_keys"): "LiteLLM checks clients by its own keys",
    ("server", "workers"): "LiteLLM's --num_workers says how many processes there are",
    ("server", "passthrough_paths"): "LiteLLM itself answers on its other paths",
    ("server", "shutdown_grace_seconds"): "LiteLLM decides how long its shutdown may take",
    ("upstream", "base_url"): "calls stay in this LiteLLM; they can't go to another",
}
_DEFAULTS = {"server": ServerSettings(), "upstream": UpstreamSettings()}


class OriginInside(SettingsOrigin, frozen=True):
    """Where the layer's settings are read, at the start and later."""

    processes: int = 1  # how many processes LiteLLM runs

    def _whole(self, sources: Sources) -> Settings:
        settings = sources.settings()
        problems = [
            f"{section}.{key}: can't be set inside LiteLLM: {why}; take it out"
            for (section, key), why in _REFUSED.items()
            if getattr(getattr(settings, section), key) != getattr(_DEFAULTS[section], key)
        ]
        if self.processes > 1 and settings.state.backend != "redis":
            problems.append(
                f"state.backend: LiteLLM runs {self.processes} processes, and "
                f"`{settings.state.backend}` is one process's alone: use `redis`, or one worker"
            )
        if problems:
            raise SettingsError(problems, str(sources.path or "settings"))
        # LiteLLM may listen on any address, under any name. Calls carry their client's own key:
        # with a key of ours, LiteLLM would admit clients that it refuses.
        hosts = settings.server.allowed_hosts or ("*",)
        server = replace(settings.server, host="0.0.0.0", allowed_hosts=hosts)
        return replace(
            settings, server=server, upstream=replace(settings.upstream, api_key_env=None)
        )


def origin_next_to(litellm_file: str | None) -> OriginInside:
    """Find the settings for ``litellm_file``, the path of LiteLLM's own file, if it has one.

    Raises ``SettingsError`` if both would be the same file.
    """
    litellm = Path(litellm_file) if litellm_file else None
    file = find_file(None, os.environ, litellm.parent if litellm is not None else Path())
    if file is not None and litellm is not None and file.resolve() == litellm.resolve():
        problem = (
            f"is LiteLLM's own; put the reliability settings into a file of their own and name "
            f"that with MLX_STACK_CONFIG, or give LiteLLM's another name than {DEFAULT_FILE}"
        )
        raise SettingsError([problem], str(file))
    return OriginInside(file, processes=int(os.environ.get("NUM_WORKERS") or 1))
