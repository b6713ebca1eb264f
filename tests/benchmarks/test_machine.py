"""What a document says of where it was measured."""

from __future__ import annotations

from pathlib import Path

from benchmarks import machine


def test_a_command_names_no_folder_of_this_machine(tmp_path: Path) -> None:
    typed = [
        "--json",
        str(tmp_path / "found.json"),
        "--write",
        "benchmarks/performance.md",
        "--only",
        "a,b",
    ]
    told = machine.command("benchmarks.cost", typed)
    assert told == (
        "python -m benchmarks.cost --json FILE --write benchmarks/performance.md --only a,b"
    )
