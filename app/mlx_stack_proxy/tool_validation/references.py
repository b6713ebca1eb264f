"""Resolves references within one schema; nothing is ever fetched.

``referencing`` knows what names a subschema: an ``$id``, a pointer, ``$anchor``,
``$dynamicAnchor``, and draft 7's ``{"$id": "#name"}``. Up to draft 7, a ``$ref``'s siblings are
ignored.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from referencing import Specification
    from referencing._core import Resolver

# What names a subschema, in its JSON text.
_NAMING: Final = ('"$id":', '"$anchor":', '"$dynamicAnchor":')
# Names are joined repeatedly: if one has more characters than this, no reference is followed.
MAX_URI: Final = 4_000
_TOO_LONG: Final = re.compile(rf'"\$id": "[^"]{{{MAX_URI}}}')


class References:
    """The references of one schema; few schemas have any, so the library is loaded when needed."""

    def __init__(self, whole: object) -> None:
        self.root: Resolver[Any] | None = None
        self.are_alone = False  # siblings of a `$ref` are ignored, by draft or by shape
        with suppress(Exception):  # not JSON, or a name that is no URI: no reference is followed
            text = json.dumps(whole)
            refers = '"$ref":' in text or '"$dynamicRef":' in text
            if isinstance(whole, dict) and refers and not _TOO_LONG.search(text):
                self._read(whole, text)

    def _read(self, whole: dict[str, Any], text: str) -> None:
        from referencing import Registry
        from referencing.jsonschema import DRAFT7, DRAFT202012

        draft = whole.get("$schema")
        old_shape = '"definitions":' in text and '"$defs":' not in text
        self.are_alone = "/draft-0" in draft if isinstance(draft, str) else old_shape
        self._draft: Specification[Any] = DRAFT7 if self.are_alone else DRAFT202012
        resource = self._draft.create_resource(whole)
        registry: Registry[Any] = Registry().with_resource(resource.id() or "", resource)
        if any(keyword in text for keyword in _NAMING):
            registry = registry.crawl()
        self.root = registry.resolver(resource.id() or "")

    def inside(self, schema: dict[str, Any], outer: Resolver[Any] | None) -> Resolver[Any] | None:
        """Return the resolver for references inside ``schema``, which is part of ``outer``."""
        if outer is not None and isinstance(schema.get("$id"), str):
            with suppress(Exception):
                return outer.in_subresource(self._draft.create_resource(schema))
        return outer

    def find(self, reference: object, outer: Resolver[Any] | None) -> tuple[Any, Any] | None:
        """Return a reference's target, and the resolver for references inside it, or None.

        A pointer that its resource lacks may be meant from the root, as if without `$id`.
        """
        for resolver in (outer, self.root):
            with suppress(Exception):  # dangling, not text, not a URI
                found = resolver.lookup(reference)  # type: ignore[union-attr, arg-type]
                if isinstance(found.contents, bool | dict):
                    return found.contents, found.resolver
        return None
