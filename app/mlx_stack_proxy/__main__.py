"""``python -m mlx_stack_proxy``: the same as the command ``mlx-stack-proxy``."""

import sys

from .operator.cli import main

sys.exit(main())
