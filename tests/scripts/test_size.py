"""``make size`` counts what is there."""

from __future__ import annotations

from pathlib import Path

from scripts.size import measured, table


def test_rooms_files_and_functions(tmp_path: Path) -> None:
    (tmp_path / "one" / "vendor").mkdir(parents=True)
    (tmp_path / "main.py").write_text("def f():\n    pass\n\n\nasync def g(): ...\n")
    (tmp_path / "one" / "a.lua").write_text("return 1\n")
    (tmp_path / "one" / "b.py").write_text(
        "class C:\n    def m(self):\n        x = 1\n        return x\n"
    )
    (tmp_path / "one" / "vendor" / "c.js").write_text("1\n" * 99)
    (tmp_path / "one" / "notes.md").write_text("no code\n")
    assert table(measured(tmp_path))[2:] == [
        "| (top level) | 5 | 1 | main.py 5 | 2 | 1.5 | main.py:1:f 2 |",
        "| one | 5 | 2 | one/b.py 4 | 1 | 3 | one/b.py:2:m 3 |",
        "| all | 10 | 3 | main.py 5 | 3 | 2 | one/b.py:2:m 3 |",
    ]
