"""What is known of LiteLLM's model groups, from whichever source tells it.

LiteLLM's configuration file and its ``/v1/model/info`` have the same shape: entries with
``model_name``, ``litellm_params`` and ``model_info``, several of one name being deployments of one
group.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
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


def is_private(host: str) -> bool:
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
    return "network" if is_private(host) else "cloud"


@dataclass(slots=True)
class _Entries:
    """One group's entries, as they are met."""

    deployments: list[Deployment] = field(default_factory=list)
    windows: list[int] = field(default_factory=list)
    mode: str | None = None
    reasoning: bool = False


def from_entries(entries: Any) -> Groups:
    """The groups of a ``model_list``, or of the ``data`` of ``/v1/model/info``."""
    found: dict[str, _Entries] = {}
    for entry in mappings(entries):
        name = entry.get("model_name")
        if not isinstance(name, str) or not name:
            continue
        params, info = mapping(entry.get("litellm_params")), mapping(entry.get("model_info"))
        group = found.setdefault(name, _Entries())
        if isinstance(model := params.get("model"), str):
            base = params.get("api_base") or params.get("base_url")
            group.deployments.append(Deployment(model, base if isinstance(base, str) else None))
        if (window := _tokens(info)) is not None:
            group.windows.append(window)
        if isinstance(mode := info.get("mode"), str):
            group.mode = mode
        group.reasoning = group.reasoning or info.get("supports_reasoning") is True
    return {
        name: ModelGroup(
            name,
            tuple(one.deployments),
            min(one.windows, default=None),
            one.mode,
            one.reasoning,
        )
        for name, one in found.items()
    }


def from_model_list(body: Any) -> Groups:
    """The groups of a ``/v1/models`` answer, which tells little more than names."""
    found: Groups = {}
    for entry in mappings(mapping(body).get("data")):
        if isinstance(name := entry.get("id"), str) and name:
            mode = entry.get("mode")
            found[name] = ModelGroup(
                name, window=_tokens(entry), mode=mode if isinstance(mode, str) else None
            )
    return found


def from_stack(stack: Any) -> Groups:
    """The groups of one of mlx-stack's ``stacks/*.yaml``: a server on a port for each tier."""
    found: Groups = {}
    for tier in mappings(mapping(stack).get("tiers")):
        name, model, port = tier.get("name"), tier.get("model"), tier.get("port")
        if not isinstance(name, str) or not isinstance(port, int):
            continue
        flags = mapping(tier.get("vllm_flags"))
        found[name] = ModelGroup(
            name,
            (Deployment(f"openai/{model}", f"http://localhost:{port}/v1"),),
            reasoning="reasoning_parser" in flags,
        )
    return found


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


def _tokens(info: Mapping[str, Any]) -> int | None:
    window = info.get("max_input_tokens")
    good = isinstance(window, (int, float)) and not isinstance(window, bool) and window >= 1
    return int(window) if good else None  # type: ignore[arg-type]
