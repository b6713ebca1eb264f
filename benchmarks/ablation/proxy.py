"""``mlx-stack-proxy`` without one row.

python -m benchmarks.ablation.proxy KIND NAME mlx_stack_proxy serve --config FILE
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from typing import Any
from unittest import mock

from benchmarks.ablation.rows import Row, rows
from mlx_stack_proxy import stages
from mlx_stack_proxy.engine.pipeline import Stage
from mlx_stack_proxy.operator import cli
from mlx_stack_proxy.settings import Settings


def main() -> int:
    kind, name = sys.argv[1:3]
    row = next(one for one in rows() if (one.kind, one.name) == (kind, name))
    sys.argv[1:4] = []
    with contextlib.ExitStack() as without:
        without.enter_context(row.out())
        if not row.is_of_loops:
            without.enter_context(mock.patch.object(stages, "build", _builder(row)))
        return cli.main() or 0


def _builder(row: Row) -> Any:
    def build(settings: Settings, before: Sequence[Stage] = ()) -> Sequence[Stage]:
        return row.stages(settings)

    return build


if __name__ == "__main__":
    sys.exit(main())
