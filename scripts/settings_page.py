"""The settings reference: `python -m scripts.settings_page` writes docs/settings.md anew.

Types, ranges and defaults come from the schema (`config.schema.json`), what a key does from the
comments of `config.example.yaml` by way of it, what needs a restart from `reload.py`, and why a
default is what it is from `docs/settings-reasons.yaml`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import yaml

from mlx_stack_proxy.operator.settings_shown import as_yaml
from mlx_stack_proxy.reload import AT_START
from mlx_stack_proxy.settings import DEFAULT_TIERS, ENV_DELIMITER, ENV_PREFIX
from mlx_stack_proxy.settings_retired import OTHER_NAMES, RETIRED
from mlx_stack_proxy.settings_source import SCHEMA
from scripts.settings_schema import MEANS

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE = DOCS / "settings.md"
REASONS = DOCS / "settings-reasons.yaml"
ANY = "NAME"  # in place of a tier's name
_TEXTS = {
    r"^https?://[^/\s]+": "URL",
    r"^(rediss?|unix)://.": "URL",
    r"^(auto|off|https?://\S+)$": "`auto`, `off` or a URL",
    r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$": "a tier's name",
}
# Where a description begins with the values: what a key takes is said before it.
_VALUES = re.compile(r"^\w+(?: \| [\w ]+)+: ")
# What is said of a section before its keys.
_NOTES = {
    (
        "tiers",
        ANY,
    ): "`NAME` is the tier's name. The default tiers: "
    + "; ".join(f"`{name}: {as_yaml(keys)}`" for name, keys in DEFAULT_TIERS.items())
    + ".\n",
    (
        "reliability",
        "escalation",
        "cloud_fallback",
    ): "The section has no default: writing it is "
    "consent to the cloud ([escalation.md]"
    "(escalation.md#the-cloud-and-never-leaving-this-machine)).\n",
}

_HEAD = """# Settings: every key

<!-- Made by `make references`; to change it, see scripts/settings_page.py. -->

How to use them: [configuration.md](configuration.md). As a file:
[config.example.yaml](../config.example.yaml). The values in force:
`mlx-stack-proxy check --settings`.

Each key has its default, its type unless the default shows it, "restart" if a change
[needs one](configuration.md#changes-at-run-time), what it does, and in italics the reason for
the default. "Specified" means by the [documents](specification.md); `name#123` is an issue of that
project. Retired keys have no effect. Measurements without a page: 2 virtual cores (Intel Xeon, 2.5
GHz, shared host, Linux 6.18, CPython 3.11), November 2026.

The environment overrides the file: `server.port` is `MLX_STACK_SERVER__PORT`, with two underscores
for each dot. Lists and mappings are JSON.
"""


@dataclass(frozen=True, slots=True)
class Key:
    """One setting. ``path``: its sections and its name; ``place``: what the schema says of it."""

    path: tuple[str, ...]
    place: Mapping[str, Any]

    @property
    def name(self) -> str:
        return ".".join(self.path)

    @property
    def variable(self) -> str:
        return ENV_PREFIX + ENV_DELIMITER.join(part.upper() for part in self.path)

    @property
    def needs_restart(self) -> bool:
        return any(self.path[: len(start)] == start for start in AT_START)


def keys() -> Iterator[Key]:
    """All settings, in the schema's order; a section's own before its sections."""
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    yield from _below(schema, schema, ())


def _below(schema: Any, section: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[Key]:
    inner: list[tuple[Mapping[str, Any], tuple[str, ...]]] = []
    for name, place in section["properties"].items():
        if MEANS in place:
            continue
        here = (*path, name)
        if here == ("tiers",):
            (tier,) = _section_of(schema, place)["patternProperties"].values()
            inner.append((_section_of(schema, tier), (*here, ANY)))
        elif "properties" in (below := _section_of(schema, place)):
            inner.append((below, here))
        else:
            yield Key(here, place)
    for below, here in inner:
        yield from _below(schema, below, here)


def _section_of(schema: Any, place: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a place of the schema refers to, null left out."""
    if "$ref" in place:
        found: Mapping[str, Any] = schema["$defs"][place["$ref"].rpartition("/")[2]]
        return found
    for option in place.get("anyOf", ()):
        if option.get("type") != "null":
            return _section_of(schema, option)
    return place


def takes(place: Mapping[str, Any]) -> str:
    """What values a key has, in words; that it may also be left empty is not said."""
    if "anyOf" in place:
        return " or ".join(takes(one) for one in place["anyOf"] if one.get("type") != "null")
    if "enum" in place:
        return " or ".join(f"`{_word(one)}`" for one in place["enum"])
    match place.get("type"):
        case "boolean":
            return "boolean"
        case "integer":
            return "integer" + _range(place)
        case "number":
            return "number" + _range(place)
        case "array":
            return "list of " + _several(place["items"])
        case "object":
            return _mapping(place)
    return _TEXTS.get(place.get("pattern", ""), "text")


def _several(items: Mapping[str, Any]) -> str:
    if "enum" in items:
        return "these"
    return takes(items).replace("a tier's name", "tiers' names").replace("text", "texts")


def _mapping(place: Mapping[str, Any]) -> str:
    """Of values; or of sections, whose keys are named."""
    below = place.get("additionalProperties")
    if not isinstance(below, Mapping):
        return "mapping"
    inner = _section_of(json.loads(SCHEMA.read_text(encoding="utf-8")), below).get("properties")
    if inner is None:
        return f"mapping of names to {takes(below)}"
    return "mapping of names to " + ", ".join(f"`{name}`" for name in inner)


def _range(place: Mapping[str, Any]) -> str:
    least, most = place.get("minimum"), place.get("maximum")
    if least is not None and most is not None:
        return f" {_word(least)} to {_word(most)}"
    if "exclusiveMinimum" in place:
        return f" > {_word(place['exclusiveMinimum'])}"
    return f" ≥ {_word(least)}" if least is not None else ""


def _word(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, str) else as_yaml(value)


def reasons() -> dict[str, Mapping[str, Any]]:
    """By a key's name: ``for``, the default that the reason was written for, and ``why``."""
    return dict(_leaves(yaml.safe_load(REASONS.read_text("utf-8")), ()))


def _leaves(tree: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if set(tree) == {"for", "why"}:
        yield ".".join(path), tree
        return
    for name, inner in tree.items():
        yield from _leaves(inner, (*path, name))


def page() -> str:
    """The text of docs/settings.md."""
    known = reasons()
    lines = [_HEAD]
    for section, several in groupby(keys(), key=lambda key: key.path[:-1]):
        lines.append(f"## {'.'.join(section)}\n")
        lines += [_NOTES[section]] if section in _NOTES else []
        lines += [_entry(key, known[key.name]["why"]) for key in several]
        if others := _other_names(section):
            lines.append(f"Other names: {others}.\n")
        retired = [path for path in RETIRED if path.split(".")[:-1] == list(section)]
        if retired:
            names = ", ".join(f"`{path.rpartition('.')[2]}`" for path in retired)
            lines.append(f"Retired: {names}.\n")
    return "\n".join(lines)


def _other_names(section: tuple[str, ...]) -> str:
    """What else keys of the section may be called, below ``loop_detection``."""
    below = section[-1] if section[:-1] == ("reliability", "loop_detection") else None
    names = [
        f"`{old}` (`{new.partition('.')[2]}`)"
        for old, new in OTHER_NAMES.items()
        if new.partition(".")[0] == below
    ]
    return ", ".join(names)


def _entry(key: Key, why: str) -> str:
    place = key.place
    default = place.get("default")
    shown = "no default" if default is None else f"`{_word(default)}`"
    accepted = takes(place)
    if default is not None and place.get("type") in ("boolean", "integer", "number"):
        accepted = accepted.partition(" ")[2]  # the default shows the type
    elif default is not None and "enum" in place:
        accepted = ", ".join(f"`{_word(one)}`" for one in place["enum"] if one != default)
        accepted = f"or {accepted}"
    restart = "**restart**" if key.needs_restart else ""
    facts = ", ".join(filter(None, [shown, accepted, restart]))
    what = _VALUES.sub("", place["description"]).removesuffix(".").replace("*", r"\*")
    return f"### `{key.name}`\n\n{facts}\n\n{what[0].upper()}{what[1:]}.\n\n*{why}*\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
