"""Print the dependencies of a pyproject.toml, one a line: they are installed before the code."""

import sys
import tomllib
from pathlib import Path

project = tomllib.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["project"]
print("\n".join(project["dependencies"]))
