"""The decorator for the classes of ``settings.py``: frozen dataclasses that pydantic checks.

They are not pydantic ``BaseModel``s: those define ``__getattr__``, which makes reading an attribute
ten times as slow (CPython 3.11), and a request reads dozens.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, dataclass_transform

from pydantic import ConfigDict, Field
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
