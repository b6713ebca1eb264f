"""Writes the list of models in Anthropic's shape."""

from __future__ import annotations

from collections.abc import Sequence

from ..transcript import Json

_CREATED = "1970-01-01T00:00:00Z"  # the time is not known


def listed(names: Sequence[str]) -> Json:
    """Return the list of these models, on one page."""
    return {
        "data": [_model(name) for name in names],
        "has_more": False,
        "first_id": names[0] if names else None,
        "last_id": names[-1] if names else None,
    }


def _model(name: str) -> Json:
    return {"type": "model", "id": name, "display_name": name, "created_at": _CREATED}
