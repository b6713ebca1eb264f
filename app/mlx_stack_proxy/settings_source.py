"""Read the settings from ``config.yaml`` and the ``MLX_STACK_*`` environment.

:func:`read` parses both into plain mappings (:class:`Sources`), which are merged, the environment
being the stronger. :func:`from_mapping` removes retired keys, fills in what depends on other keys
(a tier's model, the chain), and has pydantic check the result. An unknown key or a bad value raises
:class:`SettingsError`, which names the key's path, what is allowed there, and the most similar
known name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import yaml
from msgspec import Struct
from pydantic import ValidationError, create_model
from pydantic_settings import BaseSettings, EnvSettingsSource
from pydantic_settings import SettingsError as BaseSettingsError

from .setting_types import FORMS, keys_of, nearest, unknown_name
from .settings import CLOUD_TIER, DEFAULT_TIERS, ENV_DELIMITER, ENV_PREFIX, Settings
from .settings_retired import renamed, without_retired

CONFIG_VARIABLE = "MLX_STACK_CONFIG"
CLIENT_KEY_VARIABLE = "MLX_STACK_KEY"  # one of `server.api_keys`, for a client; not a setting
DEFAULT_FILE = "config.yaml"
SCHEMA = Path(__file__).with_name("config.schema.json")  # the file's JSON Schema, for editors
_HERE = Path()
CLOUD_WINDOW = 131_072  # tokens of the cloud's tier: no LiteLLM says how many its model has
# For each Service of a namespace Kubernetes sets variables that begin with the Service's name in
# capitals: of a Service `mlx-stack-proxy`, MLX_STACK_PROXY_PORT=tcp://10.0.0.1:4100.
_SERVICE_LINK = re.compile(r"_SERVICE_(?:HOST|PORT)|_PORT_\d+_(?:TCP|UDP|SCTP)")
_SERVICE_ADDRESS = ("tcp://", "udp://", "sctp://")


class SettingsError(ValueError):
    """The configuration can't be used.

    ``problems`` holds one sentence for each problem; ``source`` names what was read (a file's path,
    ``environment``, ``command line`` …), and stands before each sentence.
    """

    def __init__(self, problems: list[str], source: str) -> None:
        self.problems = problems
        self.source = source
        super().__init__("\n".join(f"{source}: {problem}" for problem in problems))


class Sources(Struct, frozen=True):
    """The settings as given, parsed but not validated."""

    path: Path | None  # None: there is no file
    file: Mapping[str, Any]  # as YAML gives it, with our names of keys; empty without a file
    environment: Mapping[str, Any]  # the variables, nested like the file
    # By the path of a key of ours: the other name by which it was given (`settings_retired.py`).
    names: Mapping[str, str]
    # The command line's options, nested like the file; they override both.
    command_line: Mapping[str, Any] = {}

    def settings(self) -> Settings:
        """Merge and check the sources. Raises :class:`SettingsError`."""
        places = [str(self.path)] if self.path is not None else []
        places += ["environment"] if self.environment else []
        places += ["command line"] if self.command_line else []
        source = " and ".join(places) or "settings"
        return from_mapping(self._merged(), source, self.names)

    def retired(self) -> list[str]:
        """Return the dotted paths of set keys that no longer have an effect."""
        return without_retired(self._merged())[1]

    def _merged(self) -> dict[str, Any]:
        data = dict(self.file)
        if data.get("tiers") is None:
            data["tiers"] = DEFAULT_TIERS
        return _merge(_merge(data, self.environment), self.command_line)

    def origin(self, path: tuple[str, ...]) -> Literal["environment", "file", "default"]:
        """Return where a key's value comes from. A chain that isn't given follows the tiers."""
        if _is_given(self.environment, path):
            return "environment"
        in_file = _is_given(self.file, path) or (path == CHAIN and _is_given(self.file, ("tiers",)))
        return "file" if in_file else "default"


CHAIN = ("reliability", "escalation", "chain")


def _is_given(data: Any, path: tuple[str, ...]) -> bool:
    for key in path:
        if not isinstance(data, Mapping) or key not in data:
            return False
        data = data[key]
    return data is not None or path != ("tiers",)  # an empty section defines no tier


def load(
    path: str | None = None, environ: Mapping[str, str] | None = None, folder: Path = _HERE
) -> Settings:
    """Read the settings from a YAML file and the environment; the environment is the stronger.

    The file is ``path``, else the one that ``MLX_STACK_CONFIG`` names, else ``config.yaml`` in
    ``folder`` if there is one; without a file the defaults count. Relative paths begin at
    ``folder``, the working folder. Raises :class:`SettingsError`.
    """
    return read(path, environ, folder).settings()


def read(
    path: str | None = None, environ: Mapping[str, str] | None = None, folder: Path = _HERE
) -> Sources:
    """Read the file and the environment that :func:`load` uses. Raises :class:`SettingsError`."""
    environ = os.environ if environ is None else environ
    file = find_file(path, environ, folder)
    # Renamed separately, so that an old name in the environment overrides the file.
    in_file, names = renamed(_read_yaml(file) if file is not None else {})
    variables, more_names = renamed(_from_environment(environ))
    return Sources(file, in_file, variables, names | more_names)


def find_file(path: str | None, environ: Mapping[str, str], folder: Path = _HERE) -> Path | None:
    """Return the file that :func:`load` reads, or None. Raises :class:`SettingsError`."""
    chosen = path or environ.get(CONFIG_VARIABLE)
    if chosen:
        return folder / Path(chosen).expanduser()
    file = folder / DEFAULT_FILE
    try:
        return file if file.exists() else None
    except OSError as error:
        problem = f"can't be found in the working folder: {error.strerror}"
        raise SettingsError([problem], DEFAULT_FILE) from None


def from_mapping(
    data: Mapping[str, Any], source: str = "settings", names: Mapping[str, str] | None = None
) -> Settings:
    """Check plain data of the file's shape and make settings of it. Raises :class:`SettingsError`.

    ``source`` names the data in the error. ``names``: what other names its keys were given by.
    """
    sections = keys_of(Settings)
    data, other_names = renamed(data)
    other_names |= names or {}
    data, _ = without_retired(data)
    # YAML reads a section with nothing under it (`server:`) as null: it means the defaults.
    values = {key: value for key, value in data.items() if key in sections and value is not None}
    problems = [_unknown_key((key,)) for key in data if key not in sections]
    tiers = values.setdefault("tiers", DEFAULT_TIERS)
    if isinstance(tiers, Mapping):
        if CLOUD_TIER in tiers:
            problems.append(f"tiers.{CLOUD_TIER}: is reserved for the tier that this key creates")
        values |= _filled_in(tiers, values.get("reliability"))
    try:
        settings = Settings(**values)
    except ValidationError as error:
        problems += [_sentence(e, other_names) for e in error.errors()]
    if problems:
        raise SettingsError(problems, source)
    return settings


def _filled_in(tiers: Mapping[str, Any], reliability: Any) -> dict[str, Any]:
    """Return ``tiers`` with their models, and ``reliability`` with a chain: all tiers in order.

    If the chain has no tier in the cloud, ``cloud_fallback`` makes its last one. What is no mapping
    or list is left to the check.
    """
    tiers = {
        name: {"model": name, **DEFAULT_TIERS.get(name, {}), **(tier or {})}
        if tier is None or isinstance(tier, Mapping)
        else tier
        for name, tier in tiers.items()
    }
    section = {} if reliability is None else reliability
    escalation = section.get("escalation", {}) if isinstance(section, Mapping) else ()
    escalation = {} if escalation is None else escalation
    if not isinstance(escalation, Mapping):
        return {"tiers": tiers}
    chain, fallback = escalation.get("chain", list(tiers)), escalation.get("cloud_fallback")
    model = fallback.get("model") if isinstance(fallback, Mapping) else None
    if isinstance(chain, (list, tuple)) and isinstance(model, str) and CLOUD_TIER not in tiers:
        named = [tiers.get(name) for name in chain if isinstance(name, str)]
        if not any(_is_off(tier, "local") for tier in named) and not _is_off(fallback, "enabled"):
            cloud = {"model": model, "local": False, "context_window": CLOUD_WINDOW}
            tiers, chain = {**tiers, CLOUD_TIER: cloud}, [*chain, CLOUD_TIER]
    return {
        "tiers": tiers,
        "reliability": {**section, "escalation": {**escalation, "chain": chain}},
    }


def _is_off(section: Any, key: str) -> bool:
    """Whether a switch is off; the environment gives it as a word."""
    value = section.get(key, True) if isinstance(section, Mapping) else True
    return str(value).lower() in ("false", "off", "no", "n", "f", "0")


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, which also refuses a key that is given twice.

    PyYAML would take the last and drop what stands under the first. Keys are always words here:
    YAML 1.1 would read the key ``on`` as a boolean, and a tier's name ``1`` as a number.
    """

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        # Checked here because the node is still as in the file: once `<<` is resolved, a merged key
        # stands next to the key that overrides it.
        node = super().compose_mapping_node(anchor)
        lines: dict[str, int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == _MERGE:
                continue
            key.tag = _STR
            line = key.start_mark.line + 1
            if key.value in lines:  # the message doesn't quote the key: it may be an API key
                message = f"line {line} repeats a key of line {lines[key.value]}"
                raise yaml.composer.ComposerError(None, None, message, None)
            lines[key.value] = line
        return node


_STR = "tag:yaml.org,2002:str"
_MERGE = "tag:yaml.org,2002:merge"  # `<<`: the keys next to it override those that it merges in


def _read_yaml(file: Path) -> dict[str, Any]:
    try:
        data = _Loader(file.read_text(encoding="utf-8")).get_single_data()
    except OSError as error:
        raise SettingsError([f"can't be read: {error.strerror}"], str(file)) from None
    except Exception as error:  # PyYAML raises nearly anything for `!!int x` or `2026-13-01`
        said = f"{type(error).__name__}: {error}"
        if isinstance(error, yaml.MarkedYAMLError):  # without the excerpt of the file
            mark = error.problem_mark
            place = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
            advice = "; indent with spaces" if "'\\t'" in str(error.problem) else ""
            # Of PyYAML's halves of a sentence the second begins with "but".
            but = f"{error.context}, " if str(error.problem).startswith("but ") else ""
            said = f"{but}{error.problem}{place}{advice}"
        raise SettingsError([f"is not valid YAML: {said}"], str(file)) from None
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise SettingsError(["must be a mapping of sections (server, tiers, …)"], str(file))
    return data


def service_links(environ: Mapping[str, str]) -> list[str]:
    """Return the names of Kubernetes' Service variables that begin with our prefix, sorted."""
    return sorted(
        key
        for key, value in environ.items()
        if key.startswith(ENV_PREFIX) and ENV_DELIMITER not in key
        if _section(key) not in keys_of(Settings)
        if value.startswith(_SERVICE_ADDRESS) or _SERVICE_LINK.search(key)
    )


def _section(key: str) -> str:
    """Return the section that a ``MLX_STACK_`` variable names."""
    return key[len(ENV_PREFIX) :].split(ENV_DELIMITER, maxsplit=1)[0].lower()


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    """Return what the variables give, in the file's shape. Raises :class:`SettingsError`."""
    ignored = {CONFIG_VARIABLE, CLIENT_KEY_VARIABLE, *service_links(environ)}
    variables = {
        key: value
        for key, value in environ.items()
        if key.upper().startswith(ENV_PREFIX) and ignored.isdisjoint((key, key.upper()))
    }
    problems = []
    for key, value in variables.items():
        section = _section(key)
        if section not in keys_of(Settings):
            hint = unknown_name(section, keys_of(Settings), "section")
            problems.append(f"environment variable {key}: {hint}")
            continue
        try:
            _nested({key: value})  # one by one, because its errors don't name the variable
        except (ValueError, BaseSettingsError) as error:
            problems.append(
                f"environment variable {key}: a list or a mapping must be JSON: "
                f"{error.__cause__ or error}"
            )
    if problems:
        raise SettingsError(problems, "environment")
    return _nested(variables)


# pydantic-settings' reader needs a BaseSettings class. `Settings` is none; this one has its keys.
_Keys: type[BaseSettings] = create_model(
    "_Keys",
    __base__=BaseSettings,
    **{name: (key.annotation, key) for name, key in keys_of(Settings).items()},  # type: ignore[call-overload]
)


def _nested(variables: Mapping[str, str]) -> dict[str, Any]:
    """Return the variables in the file's shape. Raises as pydantic-settings' reader does."""
    reader = EnvSettingsSource(_Keys, env_prefix=ENV_PREFIX, env_nested_delimiter=ENV_DELIMITER)
    reader.env_vars = {key.lower(): value for key, value in variables.items()}
    return reader()


def _merge(weaker: Mapping[str, Any], stronger: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(weaker)
    for key, value in stronger.items():
        old = merged.get(key)
        both_mappings = isinstance(value, Mapping) and isinstance(old, Mapping)
        merged[key] = _merge(old, value) if both_mappings else value  # type: ignore[arg-type]
    return merged


def _unknown_key(path: tuple[Any, ...]) -> str:
    """Say that the key at this path is unknown, and which key was probably meant."""
    known_keys = [name for option in _options(_type_at(path[:-1])) for name in keys_of(option)]
    return f"{_shown_path(path)}: {unknown_name(str(path[-1]), known_keys, 'key')}"


def _sentence(error: Any, other_names: Mapping[str, str]) -> str:
    """Return one of pydantic's errors as a sentence; keys and passwords are not quoted."""
    path, kind, value = tuple(error["loc"]), error["type"], error.get("input")
    is_name = path[-1:] == ("[key]",)  # the name of an entry is wrong, not its value
    dotted = _shown_path(path[:-1] if is_name else path)
    dotted = other_names.get(dotted, dotted)
    if kind == "unexpected_keyword_argument":
        return _unknown_key(path)
    if kind == "value_error":
        return f"{dotted}: {error['ctx']['error']}".removeprefix(": ")
    if kind in _WRONG_SHAPE:
        return f"{dotted}: {_WRONG_SHAPE[kind]}"
    said: str = error["msg"]
    if kind == "string_pattern_mismatch":
        said = FORMS.get(error["ctx"]["pattern"], said)
    if is_name:
        return f"{dotted}: the name {said.removeprefix('Input ')}"
    # The value may be an API key, or (with an `@`) a URL with a password.
    is_secret = any("key" in str(part) for part in path) or "@" in str(value)
    if kind == "string_type" and isinstance(value, (bool, int, float)):
        read = "" if is_secret else f", because it reads as {str(value).lower()}"
        return f"{dotted}: must be text: put it in quotes{read}"
    suffix = "" if is_secret or isinstance(value, (dict, list)) else f", not {value!r}"
    if kind == "literal_error" and isinstance(value, str) and not is_secret:
        near = nearest(value, re.findall(r"'([^']*)'", error["ctx"]["expected"]))
        suffix += f"; did you mean `{near}`?" if near else ""
    return f"{dotted}: {said[0].lower()}{said[1:]}{suffix}"


_WRONG_SHAPE = {
    "missing": "is required",
    "dataclass_type": "must be a mapping of keys (in the environment as JSON)",
    "dict_type": "must be a mapping of keys (in the environment as JSON)",
    "tuple_type": "must be a list (in the environment as JSON)",
}


def _shown_path(path: tuple[Any, ...]) -> str:
    parts = [str(part) for part in path]
    # The names below `per_key` are API keys.
    visible = [
        "…" if parent == "per_key" else part
        for parent, part in zip(["", *parts], parts, strict=False)
    ]
    return ".".join(visible)


def _type_at(path: tuple[Any, ...]) -> Any:
    """Return the schema's type at a path of keys, or None for an unknown path."""
    annotation: Any = Settings
    for key in path:
        below = (
            get_args(option)[1] if get_origin(option) is dict else keys_of(option)[key].annotation
            for option in _options(annotation)
            if get_origin(option) is dict or key in keys_of(option)
        )
        annotation = next(below, None)
    return annotation


def _options(annotation: Any) -> Iterator[Any]:
    """Yield the members of a union, however it is wrapped; any other type unchanged."""
    if get_origin(annotation) in (Union, UnionType, Annotated):
        for argument in get_args(annotation):
            yield from _options(argument)
    else:
        yield annotation
