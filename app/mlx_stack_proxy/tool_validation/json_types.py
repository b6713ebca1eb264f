"""JSON's types: the names in JSON Schema, and the wrong names in generated tool schemas."""

from __future__ import annotations

from typing import Final

JSON_TYPES: Final = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})

# Names that generators of tool schemas write for JSON's types (Python, Java, BFCL, Gemini).
TYPE_ALIASES: Final = {
    "string": "string", "str": "string", "text": "string", "char": "string",
    "number": "number", "float": "number", "double": "number", "decimal": "number",
    "integer": "integer", "int": "integer", "long": "integer", "short": "integer",
    "boolean": "boolean", "bool": "boolean",
    "object": "object", "dict": "object", "map": "object", "hashmap": "object",
    "array": "array", "list": "array", "tuple": "array", "arraylist": "array",
    "null": "null", "none": "null", "nonetype": "null",
}  # fmt: skip


def is_of_type(value: object, kind: str) -> bool:
    """Whether ``value`` is of JSON Schema's type ``kind``; 5.0 is an integer, true is not."""
    if isinstance(value, bool):
        return kind == "boolean"
    if isinstance(value, int):
        return kind in ("integer", "number")
    if isinstance(value, float):
        return kind == "number" or (kind == "integer" and value.is_integer())
    if isinstance(value, str):
        return kind == "string"
    if value is None:
        return kind == "null"
    return kind == ("array" if isinstance(value, list) else "object")
