"""`up` with scripted children in the place of the real ones; options as those of `up`.

The environment says how they behave: SCRIPTED_FAIL names a child that fails;
with SCRIPTED_HOLD the others never answer a POST.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from msgspec.structs import replace

from mlx_stack_proxy.operator import cli
from mlx_stack_proxy.operator.local_stack import children
from tests.operator.local_stack.scripted_child import __file__ as child


def scripted(real: Any) -> Any:
    def make(*args: Any) -> children.ChildSpec:
        spec: children.ChildSpec = real(*args)
        port = next(word for word in spec.what.split() if word.startswith(":"))[1:]
        failing = os.environ.get("SCRIPTED_FAIL") == spec.name
        options = ["--fail", "3"] * failing
        options += ["--hold-posts"] * ("SCRIPTED_HOLD" in os.environ)
        return replace(
            spec,
            command=(sys.executable, child, "--port", port, *options),
            url=f"http://127.0.0.1:{port}/",
            model="",
        )

    return make


def main() -> int:
    for name in ("model_server", "litellm", "proxy"):
        setattr(children, name, scripted(getattr(children, name)))
    return cli.main(["up", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
