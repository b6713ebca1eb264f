"""Loop detection: agents that go round in circles, and replies that do."""

from __future__ import annotations

from .stage import LoopDetection

__all__ = ["LoopDetection"]
