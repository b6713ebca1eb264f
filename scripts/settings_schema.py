"""The JSON Schema of ``config.yaml`` that the package ships: `make schema` writes it anew.

The rules come from ``settings.py``, what each key means from the comments of
``config.example.yaml``. A test holds the three together.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from mlx_stack_proxy import settings_source
from mlx_stack_proxy.settings import DEFAULT_TIERS, Settings
from mlx_stack_proxy.settings_retired import OTHER_NAMES

EXAMPLE = Path(__file__).resolve().parents[1] / "config.example.yaml"
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_TITLE = "mlx-stack-proxy configuration"
# Prose has one blank after its `#`, keys that are commented out none, and their own keys three.
MEANS = "x-means"  # marks a key that is another name of the one that it gives
_HIDDEN_KEY = re.compile(r"^([ \t]*+)#(?=[a-z_]+:|  )", re.MULTILINE)
_KEY = re.compile(r'(?P<indent> *)"?(?P<name>[a-z_]+)"?:(?P<rest>.*)')
_ANY_TIER = next(iter(DEFAULT_TIERS))  # the one that the example shows with all its keys


def built(example: str) -> dict[str, Any]:
    """The schema; ``example``: the text of ``config.example.yaml``."""
    schema = _trimmed(TypeAdapter(Settings).json_schema())
    definitions = schema["$defs"]
    # What settings_source.py puts in: a tier's model is its name, and nothing under a key means
    # the defaults.
    definitions["TierSettings"].pop("required")
    tiers = schema["properties"]["tiers"]
    names, tier = tiers["patternProperties"].popitem()
    tiers["patternProperties"] = {names: _or_nothing(tier)}
    tiers["additionalProperties"] = False
    tiers["default"] = DEFAULT_TIERS
    schema.pop("required", None)
    for path, text in explanations(example).items():
        _at(schema, path)["description"] = text
    _add_other_names(schema)
    schema["properties"] = {k: _or_nothing(v) for k, v in schema["properties"].items()}
    return {"$schema": _DIALECT, "title": _TITLE, **schema}


def _add_other_names(schema: dict[str, Any]) -> None:
    """Add the documents' flat names below ``loop_detection``, as what they mean."""
    loops = ("reliability", "loop_detection")
    section = next(one for one in _whole(schema, _at(schema, loops)) if "properties" in one)[
        "properties"
    ]
    for name, meant in OTHER_NAMES.items():
        if "." not in name:
            place = _at(schema, (*loops, *meant.split(".")))
            rules = {key: value for key, value in place.items() if key != "default"}
            if name == "tool_freq_overrides":  # {warn, hard_limit}, or a pair
                rules = {"type": "object"}
            section[name] = {**rules, "description": f"another name of {meant}", MEANS: meant}


def explanations(example: str) -> Mapping[tuple[str, ...], str]:
    """What the example's comments say of each key, by its path; a tier's name is ``*``."""
    found: dict[tuple[str, ...], str] = {}
    above: list[str] = []
    path: list[tuple[int, str]] = []  # each key with its indentation
    for line in _HIDDEN_KEY.sub(r"\1", example).splitlines():
        if line.lstrip().startswith("# "):
            above.append(line.strip()[2:])
            continue
        if key := _KEY.match(line):
            indent = len(key["indent"])
            path = [one for one in path if one[0] < indent]
            path.append((indent, key["name"]))
            beside = key["rest"].partition("  # ")[2].strip()
            if text := beside or " ".join(above):
                found[tuple(name for _, name in path)] = text
        above = []
    return {_general(path): text for path, text in found.items() if _is_shown(path)}


def _is_shown(path: tuple[str, ...]) -> bool:
    """Whether a key is one of all tiers', as far as it is one of a tier."""
    return path[0] != "tiers" or len(path) == 1 or (path[1] == _ANY_TIER and len(path) > 2)


def _general(path: tuple[str, ...]) -> tuple[str, ...]:
    return ("tiers", "*", *path[2:]) if path[0] == "tiers" and len(path) > 1 else path


def _at(schema: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    """The place in the schema that describes the key of this path."""
    place = schema
    for name in path:
        kind = "patternProperties" if name == "*" else "properties"
        named = (one.get(kind, {}) for one in _whole(schema, place))
        holder = next(one for one in named if name == "*" or name in one)
        place = next(iter(holder.values())) if name == "*" else holder[name]
    return place


def _whole(schema: dict[str, Any], place: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The place itself, and all that it refers to."""
    yield place
    if "$ref" in place:
        yield schema["$defs"][place["$ref"].rpartition("/")[2]]
    for option in place.get("anyOf", ()):
        yield from _whole(schema, option)


def _or_nothing(place: dict[str, Any]) -> dict[str, Any]:
    said: dict[str, Any] = {k: place[k] for k in ("description", "default") if k in place}
    rest = {k: v for k, v in place.items() if k not in said}
    return {**said, "anyOf": [rest, {"type": "null"}]}


def _trimmed(place: Any) -> Any:
    """Without titles that only repeat the names, and a section's defaults, which its keys have."""
    if isinstance(place, dict):
        dropped = {"title"} if isinstance(place.get("title"), str) else set()
        dropped |= {"default"} if "$ref" in place else set()
        return {key: _trimmed(value) for key, value in place.items() if key not in dropped}
    return [_trimmed(one) for one in place] if isinstance(place, list) else place


def text_of(schema: dict[str, Any]) -> str:
    """As the file holds it."""
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    written = text_of(built(EXAMPLE.read_text(encoding="utf-8")))
    settings_source.SCHEMA.write_text(written, encoding="utf-8")
