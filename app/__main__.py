"""``python -m app``: the same as the command ``mlx-stack-proxy``."""

import sys

from .cli import main

sys.exit(main())
