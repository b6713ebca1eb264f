"""Find the subschema at which a reference points, within one schema; nothing is ever fetched.

``referencing`` knows what names a place: an ``$id``, a pointer, ``$anchor``, ``$dynamicAnchor``,
and draft 7's ``{"$id": "#name"}``. Up to draft 7, nothing that stands next to a ``$ref`` counts.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from referencing import Specification
    from referencing._core import Resolver

# What gives a subschema a name, as its JSON text has it.
_NAMING: Final = ('"$id":', '"$anchor":', '"$dynamicAnchor":')
# Names are joined again and again: where one has more characters than this, nothing is followed.
MAX_URI: Final = 4_000
_TOO_LONG: Final = re.compile(rf'"\$id": "[^"]{{{MAX_URI}}}')


class References:
    """The references of one schema, of which few have any: the library is loaded at the first."""

    def __init__(self, whole: object) -> None:
        self.root: Resolver[Any] | None = None
        self.are_alone = False  # a `$ref` is all that counts in its subschema, by draft or by shape
        with suppress(Exception):  # no JSON, or a name that is no URI: no reference is followed
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
        """Return what resolves the references inside ``schema``, which lies in ``outer``."""
        if outer is not None and isinstance(schema.get("$id"), str):
            with suppress(Exception):
                return outer.in_subresource(self._draft.create_resource(schema))
        return outer

    def find(self, reference: object, outer: Resolver[Any] | None) -> tuple[Any, Any] | None:
        """Return where a reference points, and what resolves those inside; None: nowhere.

        A pointer that its resource does not hold may be meant from the root, as if without `$id`.
        """
        for resolver in (outer, self.root):
            with suppress(Exception):  # nowhere, no text, no URI
                found = resolver.lookup(reference)  # type: ignore[union-attr, arg-type]
                if isinstance(found.contents, bool | dict):
                    return found.contents, found.resolver
        return None
