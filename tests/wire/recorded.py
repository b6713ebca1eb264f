"""Requests that real agents have sent, where they lie beside the project."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.measure.corpora import CORPORA

Json = dict[str, Any]
REQUESTS = CORPORA / "agent-requests"

needs_them = pytest.mark.skipif(not REQUESTS.is_dir(), reason=f"no recorded requests at {REQUESTS}")


def paths(beginning: str) -> list[Path]:
    """Those whose names begin so."""
    return sorted(REQUESTS.glob(f"{beginning}*.json"))


def recorded(name: str | Path) -> Json:
    """One: its ``method``, ``path``, ``headers`` and ``body``."""
    found: Json = json.loads((REQUESTS / name).with_suffix(".json").read_bytes())
    return found


def headers_of(request: Json) -> dict[str, str]:
    """With names in lower case, as the edge gives them."""
    return {name.lower(): value for name, value in request["headers"].items()}
