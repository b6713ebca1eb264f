"""LiteLLM's model groups, from LiteLLM's answers, its file or mlx-stack's files.

Every source is first brought into the shape of LiteLLM's configuration file and its
``/v1/model/info``: entries with ``model_name``, ``litellm_params`` and ``model_info``. Entries of
one name are the deployments of one group. :func:`filled_in` then joins the sources.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from ...settings import is_loopback

Place = Literal["here", "network", "cloud", "unknown"]

# LiteLLM's providers whose default address is this machine.
_LOCAL_PROVIDERS = frozenset(
    {"docker_model_runner", "lemonade", "llamafile", "lm_studio", "ollama", "ollama_chat"}
)
_CONTAINER_HOSTS = frozenset({"host.docker.internal", "host.containers.internal"})
_NETWORK_NAMES = (".local", ".lan", ".internal", ".home.arpa")
_NOT_CHAT = re.compile(
    r"embed|rerank|whisper|(^|[-_/])tts|stable-diffusion|moderation", re.IGNORECASE | re.MULTILINE
)
# `8b`, `0.8b`, `8x7b`; not the active part of `30b-a3b`, and not `4bit`.
_BILLIONS = re.compile(r"(?<![a-z0-9.])(?:(\d+)x)?(\d+(?:\.\d+)?)b(?![a-z0-9])", re.I)


class Deployment(Struct, frozen=True):
    """A model on a server."""

    model: str  # LiteLLM's provider, a slash and the model's name
    api_base: str | None = None  # None: the provider's own address

    @property
    def place(self) -> Place:
        """Where its server is: this machine, the user's own network, or beyond."""
        if self.api_base is None:
            return "here" if self.model.partition("/")[0] in _LOCAL_PROVIDERS else "cloud"
        host = host_of(self.api_base)
        if is_loopback(host) or host in _CONTAINER_HOSTS:
            return "here"
        address = _address(host)
        # No host: `os.environ/…`, say. At a link-local address a cloud answers with its machine's
        # credentials (169.254.169.254).
        if not host or (address is not None and address.is_link_local):
            return "unknown"
        if address is not None:
            return "network" if address.is_private else "cloud"
        return "network" if "." not in host or host.endswith(_NETWORK_NAMES) else "cloud"


class ModelGroup(Struct, frozen=True):
    """The deployments that LiteLLM offers under one name."""

    name: str
    deployments: tuple[Deployment, ...] = ()
    window: int | None = None  # tokens; None: unknown
    mode: str | None = None  # LiteLLM's word for what the model does, such as `chat`
    reasoning: bool = False
    health_url: str = ""  # of the group's server, if that has answered

    @property
    def chats(self) -> bool:
        """Whether the group answers chat completions; without a ``mode``, judged by its names."""
        if self.mode is not None:
            return self.mode in ("chat", "completion", "responses")
        return not _NOT_CHAT.search(self._names)

    @property
    def billions(self) -> float | None:
        """Billions of parameters: the largest number in the names; None if they have none."""
        sizes = _BILLIONS.findall(self._names)
        return max((int(count or 1) * float(size) for count, size in sizes), default=None)

    @property
    def place(self) -> Place:
        """Where requests go; the farthest deployment decides, an unknown place counts as far."""
        places = {deployment.place for deployment in self.deployments}
        order: tuple[Place, ...] = ("cloud", "unknown", "network", "here")
        return next((place for place in order if place in places), "unknown")

    @property
    def _names(self) -> str:
        return "\n".join([self.name, *(deployment.model for deployment in self.deployments)])


Groups = dict[str, ModelGroup]


def address_of(url: str | None) -> str:
    """Return a URL's host and port without credentials; "" if it has none or isn't a URL."""
    try:
        return urlsplit(url or "").netloc.rpartition("@")[2]
    except ValueError:
        return ""


def host_of(url: str | None) -> str:
    """Return a URL's host in lower case; "" if it has none."""
    return (urlsplit(f"//{address_of(url)}").hostname or "").lower()


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the address that a host is, in whichever notation; None if it is a name."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        try:
            return ipaddress.IPv4Address(socket.inet_aton(host))  # 0xA9FEA9FE, 2852039166 …
        except (OSError, ValueError):
            return None
    return getattr(address, "ipv4_mapped", None) or address


def from_entries(entries: Any) -> Groups:
    """Return the groups of entries; the smallest of the windows in a group's entries counts."""
    groups: Groups = {}
    for entry in mappings(entries):
        name, info = entry.get("model_name"), mapping(entry.get("model_info"))
        if not isinstance(name, str) or not name:
            continue
        group, params = groups.get(name, ModelGroup(name)), mapping(entry.get("litellm_params"))
        model, base = params.get("model"), params.get("api_base") or params.get("base_url")
        one = Deployment(str(model), base if isinstance(base, str) else None)
        window: Any = info.get("max_input_tokens")
        mode = info.get("mode")
        known = isinstance(window, (int, float)) and window is not True and window >= 1
        windows = filter(None, [group.window, int(window) if known else None])
        groups[name] = ModelGroup(
            name,
            (*group.deployments, one) if isinstance(model, str) else group.deployments,
            min(windows, default=None),
            group.mode or (mode if isinstance(mode, str) else None),
            group.reasoning or info.get("supports_reasoning") is True,
        )
    return groups


def from_model_list(body: Any) -> Groups:
    """Return the groups of a ``/v1/models`` answer, which has little more than names."""
    listed = mappings(mapping(body).get("data"))
    return from_entries([{"model_name": model.get("id"), "model_info": model} for model in listed])


def from_stack(stack: Any) -> Groups:
    """Return the groups of an mlx-stack ``stacks/*.yaml``: a server on a port for each tier."""
    entries = []
    for tier in mappings(mapping(stack).get("tiers")):
        if isinstance(port := tier.get("port"), int):
            base, model = f"http://localhost:{port}/v1", f"openai/{tier.get('model')}"
            thinks = "reasoning_parser" in mapping(tier.get("vllm_flags"))
            params = {"model": model, "api_base": base}
            entry = {"model_name": tier.get("name"), "litellm_params": params}
            entries.append({**entry, "model_info": {"supports_reasoning": thinks}})
    return from_entries(entries)


def filled_in(first: Groups, *others: Groups) -> Groups:
    """Return the first source's groups, with missing fields filled in from the other sources."""
    filled = dict(first)
    for other in others:
        for name in filled.keys() & other.keys():
            group, fields = filled[name], ("deployments", "window", "mode", "reasoning")
            missing = {f: getattr(other[name], f) for f in fields if not getattr(group, f)}
            filled[name] = replace(group, **missing)
    return filled


def mapping(value: Any) -> Mapping[str, Any]:
    """Return the value if it is a mapping, else an empty one: foreign files may hold anything."""
    return value if isinstance(value, Mapping) else {}


def mappings(value: Any) -> list[Mapping[str, Any]]:
    """Return the mappings in a list; none if the value is not a list."""
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []
