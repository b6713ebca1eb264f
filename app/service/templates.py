"""The templates of ``deploy/``: in the wheel they lie beside this module."""

from __future__ import annotations

from pathlib import Path

_PLACES = (Path(__file__).parent / "deploy", Path(__file__).parents[2] / "deploy")


def template(name: str) -> str:
    """A template's text, by its path below ``deploy/``."""
    for place in _PLACES:
        if (place / name).is_file():
            return (place / name).read_text(encoding="utf-8")
    raise FileNotFoundError(f"no template {name} in {_PLACES[0]} or {_PLACES[1]}")
