"""What is known of LiteLLM's model groups, from whichever source tells it.

Every source is brought into one shape, that of LiteLLM's configuration file and its
``/v1/model/info``: entries with ``model_name``, ``litellm_params`` and ``model_info``, several of
one name being deployments of one group.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal
from urllib.parse import urlsplit

from ...frozen import frozen
from ...settings import is_loopback

Place = Literal["here", "network", "cloud", "unknown"]

# LiteLLM's providers that serve on this machine where no address is given.
_LOCAL_PROVIDERS = frozenset(
    {"docker_model_runner", "lemonade", "llamafile", "lm_studio", "ollama", "ollama_chat"}
)
_CONTAINER_HOSTS = frozenset({"host.docker.internal", "host.containers.internal"})
_NOT_CHAT = re.compile(r"embed|rerank|whisper|(^|[-_/])tts|stable-diffusion|moderation", re.I)
# `8b`, `0.8b`, `8x7b`; not the active part of `30b-a3b`, and not `4bit`.
_BILLIONS = re.compile(r"(?<![a-z0-9.])(?:(\d+)x)?(\d+(?:\.\d+)?)b(?![a-z0-9])", re.I)


@frozen
class Deployment:
    """``model``: with LiteLLM's provider before it. ``api_base``: None for the provider's own."""

    model: str
    api_base: str | None = None


@frozen
class ModelGroup:
    """``window``: tokens, None where nothing tells. ``mode``: LiteLLM's word, `chat` or another."""

    name: str
    deployments: tuple[Deployment, ...] = ()
    window: int | None = None
    mode: str | None = None
    reasoning: bool = False

    @property
    def chats(self) -> bool:
        """Whether it is for chat completions, as far as is known."""
        if self.mode is not None:
            return self.mode in ("chat", "completion", "responses")
        return not any(_NOT_CHAT.search(name) for name in self._names())

    @property
    def billions(self) -> float | None:
        """The parameters that its names tell, the largest of them."""
        found = [m for name in self._names() for m in _BILLIONS.finditer(name)]
        return max((int(m[1] or 1) * float(m[2]) for m in found), default=None)

    @property
    def place(self) -> Place:
        """Where its requests go: the farthest of its deployments decides."""
        places = {_place(deployment) for deployment in self.deployments}
        order: tuple[Place, ...] = ("cloud", "unknown", "network", "here")
        return next((place for place in order if place in places), "unknown")

    def with_more(self, other: ModelGroup) -> ModelGroup:
        """What another source adds, where this one says nothing."""
        return replace(
            self,
            deployments=self.deployments or other.deployments,
            window=self.window or other.window,
            mode=self.mode or other.mode,
            reasoning=self.reasoning or other.reasoning,
        )

    def beside(self, other: ModelGroup) -> ModelGroup:
        """With another entry of the same name: one more deployment."""
        windows = [window for window in (self.window, other.window) if window is not None]
        return replace(
            self.with_more(other),
            deployments=(*self.deployments, *other.deployments),
            window=min(windows, default=None),
        )

    def _names(self) -> list[str]:
        return [self.name, *(deployment.model for deployment in self.deployments)]


Groups = dict[str, ModelGroup]


def address_of(url: str | None) -> str:
    """The host and port of a URL; empty where it has none, or is none."""
    try:
        return urlsplit(url or "").netloc.rpartition("@")[2]
    except ValueError:
        return ""


def host_of(url: str | None) -> str:
    """The host's name in lower case; empty where the URL has none."""
    return (urlsplit(f"//{address_of(url)}").hostname or "").lower()


def _is_private(host: str) -> bool:
    """Whether a host is on one's own network: a private address, or a name without a domain."""
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return "." not in host or host.endswith((".local", ".lan", ".internal", ".home.arpa"))


def _place(deployment: Deployment) -> Place:
    if deployment.api_base is None:
        provider = deployment.model.partition("/")[0]
        return "here" if provider in _LOCAL_PROVIDERS else "cloud"
    host = host_of(deployment.api_base)
    if is_loopback(host) or host in _CONTAINER_HOSTS:
        return "here"
    if not host:  # `os.environ/…`, say
        return "unknown"
    return "network" if _is_private(host) else "cloud"


def from_entries(entries: Any) -> Groups:
    """The groups of a ``model_list``, or of the ``data`` of ``/v1/model/info``."""
    found: Groups = {}
    for entry in mappings(entries):
        name = entry.get("model_name")
        if isinstance(name, str) and name:
            params, info = mapping(entry.get("litellm_params")), mapping(entry.get("model_info"))
            one = _group(name, params, info)
            found[name] = found[name].beside(one) if name in found else one
    return found


def _group(name: str, params: Mapping[str, Any], info: Mapping[str, Any]) -> ModelGroup:
    model, base = params.get("model"), params.get("api_base") or params.get("base_url")
    window, mode = info.get("max_input_tokens"), info.get("mode")
    counts = isinstance(window, (int, float)) and not isinstance(window, bool) and window >= 1
    deployments: tuple[Deployment, ...] = ()
    if isinstance(model, str):
        deployments = (Deployment(model, base if isinstance(base, str) else None),)
    return ModelGroup(
        name,
        deployments,
        window=int(window) if counts else None,  # type: ignore[arg-type]
        mode=mode if isinstance(mode, str) else None,
        reasoning=info.get("supports_reasoning") is True,
    )


def from_model_list(body: Any) -> Groups:
    """The groups of a ``/v1/models`` answer, which tells little more than names."""
    listed = mappings(mapping(body).get("data"))
    return from_entries([{"model_name": one.get("id"), "model_info": one} for one in listed])


def from_stack(stack: Any) -> Groups:
    """The groups of one of mlx-stack's ``stacks/*.yaml``: a server on a port for each tier."""
    return from_entries(
        [
            {
                "model_name": tier.get("name"),
                "litellm_params": {
                    "model": f"openai/{tier.get('model')}",
                    "api_base": f"http://localhost:{tier['port']}/v1",
                },
                "model_info": {
                    "supports_reasoning": "reasoning_parser" in mapping(tier.get("vllm_flags"))
                },
            }
            for tier in mappings(mapping(stack).get("tiers"))
            if isinstance(tier.get("port"), int)
        ]
    )


def together(first: Groups, *others: Groups) -> Groups:
    """The first source's groups, filled up from the others."""
    filled = dict(first)
    for other in others:
        for name in filled.keys() & other.keys():
            filled[name] = filled[name].with_more(other[name])
    return filled


def mapping(value: Any) -> Mapping[str, Any]:
    """The value where it is a mapping, else an empty one: others' files hold anything."""
    return value if isinstance(value, Mapping) else {}


def mappings(value: Any) -> Iterable[Mapping[str, Any]]:
    """The mappings in a list; nothing where it is none."""
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []
