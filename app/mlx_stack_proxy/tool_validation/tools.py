"""The tools of a request, which can be found by a name or by a misspelling of it.

A model's name is tried unchanged, then without the marks that a template left around it, each time
also by its letters and digits only. A misspelling counts only if exactly one tool matches it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import cached_property
from typing import Any, Final

from .names import MAX_NAME, by_spelling, squash
from .schemas import CompiledSchema, compile_schema, is_quick

# Servers and chat templates leave these around a tool's name: Kimi's call id (`:0`, `_2`), and a
# namespace (gpt-oss and Kimi K2; Gemini). Each is removed once; the key names the repair rule.
NAME_DECORATIONS: Final = {
    "name_call_id": re.compile(r"(?::\d{1,6}|(?<=\w)_\d{1,2})$"),
    "name_prefix": re.compile(
        r"^(?:(?:functions?|tools?|default_api)[./:]|functions_)", re.IGNORECASE
    ),
}
NAMESPACE_END: Final = "__"  # separates a namespace, or a server of tools, from the tool's name


class ToolSet:
    """A request's tools, with their parameter schemas, which are compiled when first needed."""

    def __init__(self, schemas: Mapping[str, Any]) -> None:
        self.names = tuple(schemas)  # in the request's order
        self._schemas = schemas  # the parameter schemas as the client sent them, by tool name
        self._compiled: dict[str, CompiledSchema] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._schemas

    def __len__(self) -> int:
        return len(self._schemas)

    def compiled(self, name: str) -> CompiledSchema:
        """Return a tool's compiled schema; for an unknown name, one that accepts anything."""
        if name not in self._compiled:
            self._compiled[name] = compile_schema(self._schemas.get(name))
        return self._compiled[name]

    def parameters(self, name: str) -> Collection[str]:
        """Return a tool's parameters, without compiling its schema if it lists them."""
        schema = self._schemas.get(name)
        listed = schema.get("properties") if isinstance(schema, Mapping) else None
        return listed if isinstance(listed, Mapping) else self.compiled(name).properties

    def is_quick(self, name: str) -> bool:
        """Whether :meth:`compiled` takes no more than a few milliseconds."""
        return name in self._compiled or is_quick(self._schemas.get(name))

    def resolve(self, name: str) -> tuple[str, tuple[str, ...]] | None:
        """Return the one tool that ``name`` spells, and the rules applied; None if none matches.

        Rules: ``name_marker`` (removes a template's marker after the name), ``name_prefix``
        (``functions.``), ``name_call_id`` (Kimi's ``:3``), ``name_spelling`` (case, separators),
        ``name_namespace`` (the name after the ``__`` of one tool).
        """
        if name in self._schemas:
            return name, ()
        if len(name) > MAX_NAME:
            return None
        bare, marker, _ = name.partition("<|")
        trimmed = bare.strip().strip("`\"'").removesuffix("()")
        rules = ["name_marker"] if marker else ["name_spelling"] if trimmed != bare else []
        tool = self._spelled(trimmed)
        for rule, dressing in NAME_DECORATIONS.items():
            if tool is None and dressing.search(trimmed):
                rules.append(rule)
                trimmed = dressing.sub("", trimmed)
                tool = self._spelled(trimmed)
        if tool is None and (tool := self._by_bare_name.get(squash(trimmed))) is not None:
            return tool, (*rules, "name_namespace")
        if tool is None:
            return None
        if tool != trimmed and "name_spelling" not in rules:
            rules.append("name_spelling")
        return tool, tuple(rules)

    def tool_named(self, name: str) -> str | None:
        """Return the name of the tool that ``name`` spells; None if there is none."""
        resolved = self.resolve(name)
        return resolved and resolved[0]

    def schema_of(self, name: str) -> CompiledSchema:
        """Return the schema of the tool that ``name`` spells; without a tool, one for anything."""
        return self.compiled(self.tool_named(name) or "")

    def takes(self, name: str, keys: Collection[str]) -> bool:
        """Whether the tool declares all these keys, and requires no other."""
        schema, given_names = self.schema_of(name), set(keys)
        return set(schema.required) <= given_names <= schema.properties.keys()

    def tool_accepting(self, arguments: Mapping[str, Any]) -> str | None:
        """Return the one tool that accepts these arguments; None if none or several do."""
        takers = [name for name in self.names if arguments and self.takes(name, arguments.keys())]
        return takers[0] if len(takers) == 1 else None

    def _spelled(self, name: str) -> str | None:
        return name if name in self._schemas else self._by_spelling.get(squash(name))

    @cached_property
    def _by_spelling(self) -> dict[str, str]:
        return by_spelling(self.names)

    @cached_property
    def _by_bare_name(self) -> dict[str, str]:
        spaced = (name for name in self.names if NAMESPACE_END in name.strip("_"))
        return by_spelling(spaced, part=lambda name: name.rpartition(NAMESPACE_END)[2])


NO_TOOLS: Final = ToolSet({})


def tool_set(tools: object) -> ToolSet:
    """Build the tool set of a request's ``tools``, as the client sent them.

    Never raises; skips entries that are not tools.
    """
    schemas: dict[str, Any] = {}
    for entry in tools if isinstance(tools, list | tuple) else ():
        if not isinstance(entry, dict):
            continue
        # OpenAI's two forms, a custom tool; Responses' and Anthropic's have no inner object.
        inner = entry.get("function", entry.get("custom"))
        body = inner if isinstance(inner, dict) else entry
        name = body.get("name")
        if isinstance(name, str) and name:
            schema = body.get("parameters", body.get("input_schema"))
            # A tool offered twice with different schemas accepts anything: either may be meant.
            differs = name in schemas and schemas[name] != schema
            schemas[name] = None if differs else schema
    return ToolSet(schemas)
