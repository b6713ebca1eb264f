"""``check --settings``: print every setting in force and where its value comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

import yaml

from ..printable import printable, without_credentials, wrapped
from ..setting_types import keys_of
from ..settings import Settings
from ..settings_source import Sources
from . import WIDTH

_HIDDEN = "…"
_KEYS = frozenset({"api_keys", "admin_key", "url"})  # a webhook's address is its password
_BY_KEY = "per_key"  # a mapping whose names are API keys
_ORIGINS = {"environment": "env", "file": "file", "default": "default"}

Path = tuple[str, ...]


def lines(settings: Settings, sources: Sources) -> Iterator[str]:
    """Yield the settings by section, in lines of 80 columns; keys and passwords are hidden."""
    file = "no file" if sources.path is None else f"file: {sources.path}"
    yield f"# {file}; env: MLX_STACK_… variables"
    section: Path | None = None
    for path, value in _leaves(settings, ()):
        if path[:-1] != section:
            section = path[:-1]
            yield ".".join(section)
        origin = _ORIGINS[sources.origin(path)]
        line = f"{as_yaml(path[-1])}: {as_yaml(_shown(path[-1], value))}"
        yield from wrapped(line, WIDTH, f"  {origin:<8} ", " " * 13)


def as_yaml(value: Any) -> str:
    """Return a value as one line of YAML, quoted where YAML needs it."""
    text = _dumped(value, allow_unicode=True)
    if printable(text) != text:  # a line end, say, which double quotes escape
        text = _dumped(value, default_style='"')
    return text


def _dumped(value: Any, **options: Any) -> str:
    text: str = yaml.safe_dump([value], default_flow_style=True, width=1_000_000, **options)
    return text.strip()[1:-1]


def _leaves(section: Any, prefix: Path) -> Iterator[tuple[Path, Any]]:
    """Yield each key's path and value in the schema's order; a section's subsections come last."""
    inner: list[tuple[Path, Any]] = []
    for name in keys_of(type(section)):
        value, path = getattr(section, name), (*prefix, name)
        if keys_of(type(value)):
            inner.append((path, value))
        elif path == ("tiers",):
            inner += [((*path, tier), keys) for tier, keys in value.items()]
        else:
            yield path, value
    for path, value in inner:
        yield from _leaves(value, path)


def _shown(name: str, value: Any) -> Any:
    """Return the value with its secrets replaced by ``…``; ``name`` is its key's name."""
    if keys_of(type(value)):
        value = {key: inner for key, inner in asdict(value).items() if inner is not None}
    if name in _KEYS and value:
        return _HIDDEN if isinstance(value, str) else [_HIDDEN for _ in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str):
        return without_credentials(value)
    if isinstance(value, Mapping):
        return {
            f"{_HIDDEN}{number}" if name == _BY_KEY else key: _shown(key, inner)
            for number, (key, inner) in enumerate(value.items(), 1)
        }
    return [_shown("", item) for item in value] if isinstance(value, (list, tuple)) else value
