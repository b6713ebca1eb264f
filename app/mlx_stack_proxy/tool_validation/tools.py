"""The tools of a request, by name and by the spellings that mean the same name."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

from .names import MAX_NAME, squash
from .schemas import CompiledSchema, compile_schema

# What servers and chat templates leave around a tool's name; each is taken off once, under the
# rule's name: Kimi's call id, and a namespace (gpt-oss and Kimi K2; Gemini).
DRESSINGS: Final = {
    "name_call_id": re.compile(r":\d{1,6}$"),
    "name_prefix": re.compile(r"^(?:functions?|tools?|default_api)[./:]", re.IGNORECASE),
}


class ToolSet:
    """The schemas of parameters by the tools' names, as the client sent them.

    Each is compiled when first asked for. A name is only ever taken for another where both are the
    same letters and digits, whatever their case and separators, and no second tool is.
    """

    def __init__(self, schemas: Mapping[str, Any]) -> None:
        self.names = tuple(schemas)  # in the request's order
        self._schemas = schemas
        self._compiled: dict[str, CompiledSchema] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._schemas

    def __len__(self) -> int:
        return len(self._schemas)

    def compiled(self, name: str) -> CompiledSchema:
        """The schema of a tool; one for anything where it is not offered."""
        if name not in self._compiled:
            self._compiled[name] = compile_schema(self._schemas.get(name))
        return self._compiled[name]

    def resolve(self, name: str) -> tuple[str, tuple[str, ...]] | None:
        """The one tool that `name` spells, and the rules applied; None where there is none.

        Rules: ``name_marker`` (a template's marker behind the name is cut off), ``name_prefix``
        (``functions.``), ``name_call_id`` (Kimi's ``:3``), ``name_spelling`` (case, separators).
        """
        if name in self._schemas:
            return name, ()
        if len(name) > MAX_NAME:
            return None
        bare, marker, _ = name.partition("<|")
        trimmed = bare.strip().strip("`\"'").removesuffix("()")
        rules = ["name_marker"] if marker else ["name_spelling"] if trimmed != bare else []
        found = self._spelled(trimmed)
        for rule, dressing in DRESSINGS.items():
            if found is None and dressing.search(trimmed):
                rules.append(rule)
                trimmed = dressing.sub("", trimmed)
                found = self._spelled(trimmed)
        if found is None:
            return None
        if found != trimmed and "name_spelling" not in rules:
            rules.append("name_spelling")
        return found, tuple(rules)

    def meant(self, name: str) -> str | None:
        """The tool that `name` spells."""
        found = self.resolve(name)
        return found and found[0]

    def schema_of(self, name: str) -> CompiledSchema:
        """The schema of the tool that `name` spells; one for anything where it spells none."""
        return self.compiled(self.meant(name) or "")

    def takes(self, name: str, keys: Collection[str]) -> bool:
        """Whether arguments of these keys are some of the tool's, and all that it needs."""
        schema, given = self.schema_of(name), set(keys)
        return set(schema.required) <= given <= schema.properties.keys()

    def _spelled(self, name: str) -> str | None:
        return name if name in self._schemas else self._by_spelling.get(squash(name))

    @cached_property
    def _by_spelling(self) -> dict[str, str | None]:
        """By letters and digits; None for two tools that differ in nothing else."""
        found: dict[str, str | None] = {}
        for name in self.names:
            key = squash(name)
            found[key] = None if key in found or not key else name
        return found


def tool_set(tools: object) -> ToolSet:
    """The tool set of a request's `tools`, as the client sent them.

    Never raises: entries that are no tools are passed over.
    """
    schemas: dict[str, Any] = {}
    for name, schema in _entries(tools):
        # Offered twice, differently: either may be meant.
        schemas[name] = schema if schemas.get(name, schema) == schema else None
    return ToolSet(schemas)


def _entries(tools: object) -> Iterator[tuple[str, Any]]:
    """Name and parameters of each tool: OpenAI's two forms, Responses', Anthropic's, custom."""
    if not isinstance(tools, Sequence) or isinstance(tools, str | bytes):
        return
    for entry in tools:
        if not isinstance(entry, Mapping):
            continue
        inner = (entry.get(key) for key in ("function", "custom"))
        body = next((one for one in inner if isinstance(one, Mapping)), entry)
        name = body.get("name")
        if isinstance(name, str) and name:
            yield name, body.get("parameters", body.get("input_schema"))
