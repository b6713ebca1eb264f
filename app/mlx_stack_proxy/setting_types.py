"""What settings are made of: the decorator of a section, and the types of its values.

A section is a frozen dataclass that pydantic checks, and no ``BaseModel``: that defines
``__getattr__``, which makes reading an attribute ten times as slow (CPython 3.11), and a request
reads dozens.

Each type is an ``Annotated`` for pydantic. Its ``Field`` is what ``config.schema.json`` shows; the
validators next to it check what a schema can't say, and raise ``ValueError`` with a sentence for
the user, which ``settings_source.py`` puts after the key's path.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, Literal, TypeVar, dataclass_transform
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field
from pydantic.dataclasses import dataclass
from pydantic.fields import FieldInfo

_T = TypeVar("_T")
_STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(Field,))
def section(cls: type[_T]) -> type[_T]:
    """Make a class a section of the settings: strict, frozen, with keyword arguments only.

    A key whose default is a ``Field(…)`` must set ``kw_only=True`` itself: pydantic would put it
    before all others, in the schema and in ``check --settings``.
    """
    return dataclass(config=_STRICT, frozen=True, slots=True, kw_only=True)(cls)  # type: ignore[return-value]


def keys_of(kind: Any) -> Mapping[str, FieldInfo]:
    """Return the keys of a section's class in their order; of any other type, an empty mapping."""
    fields: Mapping[str, FieldInfo] = getattr(kind, "__pydantic_fields__", {})
    return fields


def _number(value: object) -> object:
    """Refuse booleans, which Python counts as 0 and 1: ``max_concurrency: true`` is a mistake."""
    if isinstance(value, bool):
        raise ValueError(f"must be a number, not {str(value).lower()}")
    return value


_Number = BeforeValidator(_number)
Positive = Annotated[float, Field(gt=0), _Number]
NotNegative = Annotated[float, Field(ge=0), _Number]
Count = Annotated[int, Field(ge=0), _Number]
AtLeastOne = Annotated[int, Field(ge=1), _Number]
Share = Annotated[float, Field(ge=0, le=1), _Number]
Port = Annotated[int, Field(ge=0, le=65535), _Number]
ApiKey = Annotated[str, Field(min_length=1)]  # an empty key would admit clients that send none
TIER_NAME: Final = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"
TierName = Annotated[str, Field(pattern=TIER_NAME)]


def _yaml_switch(value: object) -> object:
    """Turn booleans back into ``off`` and ``on``: YAML 1.1 reads the bare words as booleans."""
    if value is False:
        return "off"
    return "on" if value is True else value


def _base_url(value: str) -> str:
    """Refuse URLs that no connection can be made to: at the start, not at the first request."""
    try:
        parts = urlsplit(value)
        host = (parts.hostname or "").encode("idna")
        is_valid = bool(host) and (parts.port is None or parts.port > 0)
    except ValueError:  # unclosed brackets, a non-numeric port, an overlong name
        is_valid = False
    if not is_valid or re.search(r"\s", value):
        raise ValueError(FORMS[_BASE_URL])
    return value


def without_v1(url: str) -> str:
    """Return LiteLLM's address without ``/v1``, which clients' base URLs have and our paths add."""
    return url.rstrip("/").removesuffix("/v1") if urlsplit(url).path else url


def _redis_url(value: str) -> str:
    """Refuse URLs that the Redis client would refuse later, without naming the setting."""
    from redis.asyncio.connection import parse_url  # takes half a second: only where Redis is used

    try:
        parse_url(value)
    except ValueError:  # its message quotes the URL, which may hold a password
        raise ValueError("must be a URL such as redis://127.0.0.1:6379/0") from None
    return value


_BASE_URL: Final = r"^https?://[^/\s]+"
_REDIS_URL: Final = r"^(rediss?|unix)://."
_HEALTH_URL: Final = r"^(auto|off|https?://\S+)$"
_PASSTHROUGH_PATH: Final = r"^[A-Z]+ /v1/([\w.:@-]|/[\w.:@-]|\{\w+\}|/\{\w+\})+$"
_ALLOWED_HOST: Final = r"^(\*|(\*\.)?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*)$"
# The error message for a value that doesn't match the pattern.
FORMS: Final = {
    _BASE_URL: "must be a URL such as http://127.0.0.1:4000",
    _REDIS_URL: "must be a URL that begins with redis://, rediss:// or unix://",
    _PASSTHROUGH_PATH: "must be a method and a path: `GET /v1/files` or `GET /v1/files/{id}`",
    _ALLOWED_HOST: "must be a name such as llm.example.com or *.example.com, without a port",
    TIER_NAME: "must begin with a letter or a digit; more of these, and `_`, `.`, `-`, may follow",
    _HEALTH_URL: "must be auto, off or a URL such as http://127.0.0.1:4110",
}
BaseUrl = Annotated[str, Field(pattern=_BASE_URL), AfterValidator(_base_url)]
WebhookUrl = Annotated[
    str, Field(pattern=r"^https?://[^\s/?#@]+(/[!-~]*)?$"), AfterValidator(_base_url)
]
TimeOfDay = Annotated[str, Field(pattern=r"^([01]\d|2[0-3]):[0-5]\d$")]
RedisUrl = Annotated[str, Field(pattern=_REDIS_URL), AfterValidator(_redis_url)]
PassthroughPath = Annotated[str, Field(pattern=_PASSTHROUGH_PATH)]
AllowedHost = Annotated[str, Field(pattern=_ALLOWED_HOST)]
SwitchWord = BeforeValidator(_yaml_switch)


def _memory_source(value: str) -> str:
    return value if value in ("auto", "off") else _base_url(value)


MemorySource = Annotated[
    str,
    Field(pattern=_HEALTH_URL),
    AfterValidator(_memory_source),
    SwitchWord,
]


def _switch_or_word(value: object) -> object:
    """Turn ``true``, ``on``, ``no`` … into booleans: environment variables are always text."""
    words = {"true": True, "on": True, "yes": True, "false": False, "off": False, "no": False}
    return words.get(value.lower(), value) if isinstance(value, str) else value


def _params(value: dict[str, Any]) -> dict[str, Any]:
    """Refuse values that JSON can't hold: they are sent in request bodies."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        raise ValueError("must be values that JSON can hold: no dates, no .nan or .inf") from None
    return value


Params = Annotated[dict[str, Any], AfterValidator(_params)]
AutoOrSwitch = Annotated[Literal["auto", True, False], BeforeValidator(_switch_or_word)]


def unknown_name(name: str, known_names: Iterable[Any], kind: str) -> str:
    names = [str(n) for n in known_names]
    if near := nearest(name, names):
        return f"unknown {kind} `{name}`; did you mean `{near}`?"
    return f"unknown {kind} `{name}`; known: {', '.join(names)}"


def nearest(name: str, names: list[str]) -> str:
    """Return the most similar name, or "" if none is similar."""
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return near[0] if near else ""
