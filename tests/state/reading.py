"""What is in a state file, seen by another program, whether or not a process has it open."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any


def rows(path: Path, columns: str, table: str) -> list[tuple[Any, ...]]:
    """A table's rows; none where there is no file of ours yet."""
    if not path.exists():
        return []
    connection = sqlite3.connect(path)
    try:
        return connection.execute(f"SELECT {columns} FROM {table}").fetchall()
    except sqlite3.OperationalError:
        return []
    finally:
        connection.close()
