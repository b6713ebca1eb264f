"""Determines a request's session (docs/budgets.md has the order of the sources).

A client may name its session in a header or a field of the body. If it doesn't, the session is
derived from the beginning of the conversation, without the times, paths and ids in it. Only a hash
of the session's name is stored and logged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import orjson
from msgspec import Struct

from ..recent import Recent
from ..wire.delta import text_of
from ..wire.dialect import SessionName
from .headers import KEY_HEADERS

_LITELLM = ("x-litellm-session-id", "x-litellm-trace-id")
_ANY_SESSION = re.compile(r"x-.+-session-id")
_ANY_VALUE = re.compile(r"[A-Za-z0-9_.:-]{8,128}")
_OTHERS = (
    "x-session-id",
    "x-session-affinity",
    "x-opencode-session",
    "x-task-id",
    "x-roo-task-id",
    "x-openwebui-chat-id",
    "x-conversation-id",
    "helicone-session-id",
)
_NAMED = frozenset({"x-mlx-stack-session", *_LITELLM, *_OTHERS})
_CODEX = ("session-id", "session_id", "thread-id", "conversation_id")
_LAST_NAME = re.compile(r"(?<![A-Za-z0-9_.:-])[A-Za-z0-9_.:-]++$")
_MAX_LENGTH = 512
_KNOWN_KEYS = 256
DIGITS = 32  # of a session's hash, without those of its key
_MAX_USER_ID = 4_096  # characters; a longer user id is not searched for a session


class SessionId(Struct, frozen=True):
    """A request's session."""

    source: str  # where the name came from: a header, a field of the body, or "derived"
    hash: str  # the hex digest of the session's name
    budget_hash: str  # the session whose budget is charged: a sub-agent's parent, if it names one

    @property
    def derived(self) -> bool:
        return self.source == "derived"

    @property
    def header(self) -> str:
        return f"{self.source};{self.hash[:12]}"


def identify(
    headers: Mapping[str, str],
    body: Mapping[str, Any],
    owner: str,
    messages: Sequence[Any],
    named: SessionName | None = None,
) -> SessionId:
    """Return the session of a request.

    ``headers``: names in lower case. ``body``: as the client sent it. ``owner``: keeps the sessions
    of different API keys apart; "" if keys are not distinguished. ``messages``: the request's.
    ``named``: the session that the dialect names; only our own header takes precedence.
    """
    if named is not None and not _usable(headers.get("x-mlx-stack-session")):
        session_hash = digest(owner, named.name)
        return SessionId(
            named.source,
            session_hash,
            digest(owner, named.budget) if named.budget else session_hash,
        )
    parent = ""
    session = _from_headers(headers)
    if session is None:
        session = _from_body(body, owner, headers, messages)
    elif session[0] not in ("x-mlx-stack-session", *_LITELLM):
        parent = headers.get("x-parent-session-id", "")
    source, name = session
    session_hash = digest(owner, name)
    has_parent = parent and _ANY_VALUE.fullmatch(parent)
    parent_hash = digest(owner, parent) if has_parent else session_hash
    return SessionId(source, session_hash, parent_hash)


def digest(owner: str, name: str) -> str:
    """Return a session's stored name: 128 bits of hash as hex, then 32 bits of its key's, if any.

    ``owner``: the API key. Its digits let the store tell the sessions of different keys apart.
    """
    data = f"{owner}\0{name}".encode("utf-8", "surrogatepass")
    return blake2b(data, digest_size=16).hexdigest() + (_key_digits(owner) if owner else "")


@lru_cache(_KNOWN_KEYS)
def _key_digits(owner: str) -> str:
    return blake2b(owner.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()


def busiest_key(names: Sequence[str]) -> Sequence[str]:
    """Return the older half of the names whose API key has the most of them.

    ``names``: sessions' hashes, the oldest first. A bounded cache evicts these, so that no key
    displaces another's sessions. If no key has two, return all.
    """
    by_key: dict[str, list[str]] = {}
    for name in names:
        by_key.setdefault(name[DIGITS:], []).append(name)
    if len(by_key) == len(names):
        return names
    busiest = max(by_key.values(), key=len)
    return busiest[: (len(busiest) + 1) // 2]


def _from_headers(headers: Mapping[str, str]) -> tuple[str, str] | None:
    any_named = not _NAMED.isdisjoint(headers)  # most requests have none of them
    for name in ("x-mlx-stack-session", *_LITELLM) if any_named else ():
        if value := _usable(headers.get(name)):
            return name, value
    for name, value in headers.items():
        if (
            name.endswith("-session-id")
            and name != "x-parent-session-id"
            and _ANY_SESSION.fullmatch(name)
            and _ANY_VALUE.fullmatch(value)
        ):
            return name, value
    for name in _OTHERS if any_named else ():
        if value := _usable(headers.get(name)):
            return name, value
    if "codex" in headers.get("user-agent", "").lower():
        for name in _CODEX:
            if value := _usable(headers.get(name)):
                return name, value
    return None


def _usable(value: str | None) -> str:
    return value.strip()[:_MAX_LENGTH] if value else ""


def _from_body(
    body: Mapping[str, Any], owner: str, headers: Mapping[str, str], messages: Sequence[Any]
) -> tuple[str, str]:
    if ("metadata" in body or "litellm_session_id" in body) and (session := _named_in(body)):
        return session
    api_key = next((headers[name] for name in KEY_HEADERS if headers.get(name)), "")
    derived = _derived(messages, owner or api_key)
    cache_key = body.get("prompt_cache_key")
    if isinstance(cache_key, str) and (name := _usable(cache_key)):
        return "prompt_cache_key", f"{name}\0{derived}"
    return "derived", derived


def _named_in(body: Mapping[str, Any]) -> tuple[str, str] | None:
    metadata = body.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    for source, value in (
        ("litellm_session_id", body.get("litellm_session_id")),
        ("metadata.session_id", metadata.get("session_id")),
        ("metadata.user_id", _session_in_user_id(metadata.get("user_id"))),
    ):
        if isinstance(value, str) and (name := _usable(value)):
            return source, name
    return None


def _session_in_user_id(user_id: Any) -> str | None:
    if not isinstance(user_id, str) or len(user_id) > _MAX_USER_ID:
        return None
    last = _LAST_NAME.search(user_id)
    name = last[0].partition("_session_")[2] if last else ""
    if name:
        return name
    if user_id.startswith("{"):
        try:
            parsed = orjson.loads(user_id)
        except orjson.JSONDecodeError:
            return None
        value = parsed.get("session_id") if isinstance(parsed, dict) else None
        return value if isinstance(value, str) else None
    return None


_WEEKDAY = r"(?:Mon|Tues?|Wed(?:nes)?|Thu(?:rs)?|Fri|Sat(?:ur)?|Sun)(?:day)?"
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|June?|July?|Aug|Sept?|Oct|Nov|Dec)[a-z]{0,6}"
_ZONE = r"(?:\s?(?:Z|UTC|GMT|[+-]\d\d:?\d\d)(?!\w))?"
_TIME = rf"\d{{1,2}}:\d\d(?::\d\d(?:[.,]\d+)?)?(?:\s?[AaPp]\.?[Mm]\b\.?)?{_ZONE}"
_DATE = (  # in words
    rf"(?:\d{{1,2}}(?:st|nd|rd|th|\.)?[ -])?{_MONTH}(?:\.? \d{{1,2}}(?:st|nd|rd|th)?)?"
    r",?[ -]\d{4}\b"
)
_PATH = r"[^\s\"'`<>)]*"
# Parts of a prompt that differ between runs of the same agent: ids, times, dates, paths. Grouped by
# their first character, because most characters of a text begin none of them.
_HEXADECIMAL = (  # uuid
    r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"
    r"|(?<![0-9A-Za-z])[0-9a-fA-F]{32}(?![0-9A-Za-z])"
)
_NUMERIC = "|".join(
    (
        rf"\d{{4}}[-/]\d\d?[-/]\d\d?(?:[T ]{_TIME})?",
        r"20\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])"
        r"(?:[T_-]?[0-2]\d[0-5]\d(?:[0-5]\d)?Z?)?(?!\d)",  # 20261123T140500Z
        r"\d{4}年\d{1,2}月\d{1,2}日",
        r"\d{1,2}[./]\d{1,2}[./]\d{2,4}",
        r"(?<!-)\d{1,2}-\d{1,2}-\d{4}(?![\d-])",
        # Seconds since 1970 in the years 2020 to 2033, or milli-, micro- or nanoseconds.
        r"(?<!\.)1[6-9]\d{8}(?:\d{3}){0,3}(?:\.\d+)?(?!\d)",
        _TIME,
        r"(?:1[0-2]|[1-9])\s?(?:[AaPp][Mm]\b|[ap]\.m\.)",
        _DATE,
    )
)
_WORDS = (
    rf"(?:{_WEEKDAY},? )?(?:{_TIME}|{_DATE}"
    rf"|{_MONTH} {{1,2}}\d{{1,2}} {_TIME}(?: [A-Z]{{3,4}})? \d{{4}}\b)"  # the format of `date`
)
_VOLATILE = re.compile(
    rf"(?=[0-9a-fA-F])(?:{_HEXADECIMAL})"
    rf"|(?=\d)(?<!\d)(?:{_NUMERIC})"
    rf"|(?=[ADFJMNOSTW])(?<![A-Za-z])(?:{_WORDS})"
    rf"|(?:/private)?/(?:tmp|var/folders|var/tmp|dev/shm|run/user)/{_PATH}"
    rf"|[A-Za-z]:(?:[\\/]+[^\s\\/\"'`<>)]+){{0,8}}?[\\/]+[Tt][Ee]?[Mm][Pp][\\/]+{_PATH}"
)
_MAX_STABILISED = 64_000  # characters of a text; the rest counts unchanged
_KNOWN_TEXTS = 512
# The digest of each text without its volatile parts, by the text's hash.
_stable_digests: Recent[int, bytes] = Recent(_KNOWN_TEXTS)


def _stable_digest(text: str) -> bytes:
    """Return a digest of a text without its volatile parts."""
    text_hash = hash(text)
    stable_digest = _stable_digests.get(text_hash)
    if stable_digest is None:  # rare, because an agent sends the same prompt every turn
        steady = _VOLATILE.sub("\0", text[:_MAX_STABILISED]) + text[_MAX_STABILISED:]
        stable_digest = blake2b(steady.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        _stable_digests[text_hash] = stable_digest
    return stable_digest


def _derived(messages: Sequence[Any], key: str) -> str:
    """Derive a session's name from ``key``, the first user message and the system's before it."""
    hasher = blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16)
    for message in messages:
        role = message.get("role") if isinstance(message, dict) else None
        if role in ("system", "developer", "user"):
            hasher.update(_stable_digest(text_of(message.get("content"))))
        if role == "user":
            break
    return hasher.hexdigest()
