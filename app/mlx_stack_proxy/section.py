"""What settings and their parts are made of: dataclasses that pydantic checks.

No ``BaseModel``: it has a ``__getattr__``, with which each read of an attribute costs what ten cost
without (CPython 3.11), and a request makes dozens.
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
    """Keys that stand together, and are never changed.

    A key whose default is a ``Field(…)`` says ``kw_only`` itself, or pydantic puts it before all
    others, in the schema and in what is shown.
    """
    return dataclass(config=_STRICT, frozen=True, slots=True, kw_only=True)(cls)  # type: ignore[return-value]


def keys_of(kind: Any) -> Mapping[str, FieldInfo]:
    """The keys of a section's class, in their order; those of any other are none."""
    found: Mapping[str, FieldInfo] = getattr(kind, "__pydantic_fields__", {})
    return found
