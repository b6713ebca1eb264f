"""Tool calls: checked against the request's tools, mended where that is sure, else refused."""

from .stage import ToolValidation

__all__ = ["ToolValidation"]
