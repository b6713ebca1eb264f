"""Dataclasses that nobody changes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

_T = TypeVar("_T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[_T]) -> type[_T]:
    """A dataclass with slots and a hash, frozen for the type checker alone.

    One that is frozen while it runs, too, takes two to three times as long to make, and an
    exchange makes dozens.
    """
    return dataclass(slots=True, unsafe_hash=True)(cls)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen_with_dict(cls: type[_T]) -> type[_T]:
    """The same without slots, for what is worked out once."""
    return dataclass(unsafe_hash=True)(cls)
