"""Settings from ``config.yaml`` and the environment.

An unknown key or a bad value is a :class:`SettingsError`, which names the key's path, what is
allowed there, and the nearest right name.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_settings import BaseSettings, EnvSettingsSource

from .settings import DEFAULT_TIERS, ENV_DELIMITER, ENV_PREFIX, Settings, unknown_name

CONFIG_VARIABLE = "MLX_STACK_CONFIG"
DEFAULT_FILE = "config.yaml"


class SettingsError(ValueError):
    """The configuration can't be used. ``problems`` holds one sentence for each thing wrong."""

    def __init__(self, problems: list[str], source: str) -> None:
        self.problems = problems
        self.source = source
        super().__init__("\n".join(f"{source}: {problem}" for problem in problems))


def load(path: str | None = None, environ: Mapping[str, str] | None = None) -> Settings:
    """The settings from a YAML file and the environment; the environment is the stronger.

    ``path``: the file; without it ``MLX_STACK_CONFIG``, then ``./config.yaml`` if it is there, then
    the defaults alone. Raises :class:`SettingsError`.
    """
    environ = os.environ if environ is None else environ
    named = path or environ.get(CONFIG_VARIABLE)
    file = Path(named or DEFAULT_FILE).expanduser()
    if named is None and not file.exists():
        data: dict[str, Any] = {}
        source = "settings"
    else:
        data = _read_yaml(file)
        source = str(file)
    if data.get("tiers") is None:
        data = {**data, "tiers": DEFAULT_TIERS}
    return from_mapping(_merge(data, _from_environment(environ)), source)


def from_mapping(data: Mapping[str, Any], source: str = "settings") -> Settings:
    """Settings from plain data of the file's shape. Raises :class:`SettingsError`."""
    whole = dict(data)
    if whole.get("tiers") is None:
        whole["tiers"] = DEFAULT_TIERS
    tiers = whole["tiers"]
    if isinstance(tiers, Mapping):
        whole["tiers"] = {
            name: {"model": name, **DEFAULT_TIERS.get(name, {}), **(tier or {})}
            if tier is None or isinstance(tier, Mapping)
            else tier
            for name, tier in tiers.items()
        }
        _follow_tiers(whole, list(tiers))
    try:
        return Settings(**whole)
    except ValidationError as error:
        raise SettingsError([_sentence(e) for e in error.errors()], source) from None
    except TypeError as error:  # keys that are no strings
        raise SettingsError([str(error)], source) from None


def _follow_tiers(whole: dict[str, Any], names: list[str]) -> None:
    """Let the chain, where none is given, be the tiers in the order given."""
    reliability = whole.get("reliability")
    if reliability is not None and not isinstance(reliability, Mapping):
        return
    section = dict(reliability or {})
    escalation = section.get("escalation")
    if escalation is None:
        escalation = {}
    if isinstance(escalation, Mapping) and "chain" not in escalation:
        section["escalation"] = {**escalation, "chain": names}
        whole["reliability"] = section


def _read_yaml(file: Path) -> dict[str, Any]:
    try:
        data = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError([f"can't be read: {error.strerror}"], str(file)) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SettingsError([f"is not valid YAML: {error}"], str(file)) from None
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise SettingsError(["must hold a mapping of sections (server, tiers, …)"], str(file))
    return data


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    ours = {k: v for k, v in environ.items() if k.upper().startswith(ENV_PREFIX)}
    ours = {k: v for k, v in ours.items() if k.upper() != CONFIG_VARIABLE}
    problems = []
    for key in ours:
        section = key[len(ENV_PREFIX) :].split(ENV_DELIMITER)[0].lower()
        if section not in Settings.model_fields:
            hint = unknown_name(section, Settings.model_fields, "section")
            problems.append(f"environment variable {key}: {hint}")
    if problems:
        raise SettingsError(problems, "environment")
    source = _Environment(Settings, {k.lower(): v for k, v in ours.items()})
    try:
        return source()
    except Exception as error:  # pydantic-settings wraps a JSON error in its own
        raise SettingsError([str(error.__cause__ or error)], "environment") from None


class _Environment(EnvSettingsSource):
    """pydantic-settings' reader, over a given mapping instead of the process's environment."""

    def __init__(self, settings_cls: type[BaseSettings], environ: Mapping[str, str]) -> None:
        self._given = environ
        super().__init__(settings_cls, case_sensitive=False)

    def _load_env_vars(self) -> Mapping[str, str | None]:
        return dict(self._given)


def _merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        both = isinstance(value, Mapping) and isinstance(old, Mapping)
        merged[key] = _merge(old, value) if both else value  # type: ignore[arg-type]
    return merged


def _sentence(error: Any) -> str:
    path = tuple(error["loc"])
    where = ".".join(str(part) for part in path)
    if error["type"] == "extra_forbidden":
        known = _names_at(Settings, path[:-1])
        return f"{where}: {unknown_name(str(path[-1]), known, 'key')}"
    if error["type"] == "value_error" and not path:
        return str(error["ctx"]["error"])
    if error["type"] == "missing":
        return f"{where}: is required"
    came = error.get("input")
    secret = any("key" in str(part) for part in path)
    shown = "" if secret or isinstance(came, (dict, list)) else f", not {came!r}"
    return f"{where}: {error['msg'][0].lower()}{error['msg'][1:]}{shown}"


def _names_at(model: type[BaseModel], path: tuple[Any, ...]) -> list[str]:
    """The key names the schema allows at a path of keys."""
    current: Any = model
    for part in path:
        for option in _models_in(current):
            if part in option.model_fields:
                current = option.model_fields[part].annotation
                break
        # a key of a dict[str, Model] keeps `current`: its value type is found below
    return [name for option in _models_in(current) for name in option.model_fields]


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif get_origin(annotation) in (dict, Union, UnionType, Annotated):
        for argument in get_args(annotation):
            yield from _models_in(argument)
