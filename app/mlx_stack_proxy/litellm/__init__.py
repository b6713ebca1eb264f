"""The reliability layer inside LiteLLM's own process, for its ``config.yaml``::

    litellm_settings:
      callbacks: [mlx_stack_proxy.litellm.reliability]

LiteLLM imports this module and reads its attribute ``reliability``, which starts the layer. The
module imports nothing before that, so that the proxy can ship this package without LiteLLM.
``inside.py`` explains how the layer works, docs/inside-litellm.md what differs from the proxy.
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    if name != "reliability":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import inside

    return inside.started()
