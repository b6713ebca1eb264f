"""What is in a state file, seen by another program, whether or not a process has it open."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from mlx_stack_proxy.state import rows
from mlx_stack_proxy.state.rows import Contents


def contents(path: Path) -> Contents | None:
    """None where there is no file of ours yet. Its events are not read."""
    if not path.exists():
        return None
    connection = sqlite3.connect(path)
    try:
        return rows.contents(connection.execute("SELECT name, kind, content FROM entries"))[0]
    except sqlite3.OperationalError:
        return None
    finally:
        connection.close()
