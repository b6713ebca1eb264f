"""A call as a tier's breaker sees it."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass
class OnTier:
    tier: str
    at: float = math.inf
    probe: bool = False
