"""The reliability layer inside LiteLLM's own process, for its ``config.yaml``::

    litellm_settings:
      callbacks: [mlx_stack_proxy.litellm.reliability]

LiteLLM imports this module and asks it for ``reliability``; that is when the layer starts. Nothing
is imported before, so that the proxy can have this package without having LiteLLM. How it works
stands in ``inside.py``, what differs from the proxy in docs/inside-litellm.md.
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    if name != "reliability":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import inside

    return inside.started()
