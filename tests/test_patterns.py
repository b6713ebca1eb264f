"""No regular expression of the package is worse than linear, whatever text it is held against."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import mlx_stack_proxy
from tests.support.pumping import slowest

MINUTES = 10  # it takes one or two


def test_every_pattern_of_the_package_is_linear() -> None:
    """In a process of its own: patterns are seen while the package is imported first."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.patterns"],
        capture_output=True,
        text=True,
        timeout=60 * MINUTES,
        check=True,
    )
    found = re.search(r"(\d+) patterns", done.stderr)
    assert found is not None
    assert int(found[1]) > 50
    assert done.stdout == ""


def test_no_group_repeats_possessively() -> None:
    """Python before 3.11.5 misreads `(?:…)*+` (CPython 106052); `(?>(?:…)*)` means the same."""
    files = sorted(Path(mlx_stack_proxy.__file__).parent.rglob("*.py"))
    found = [file.name for file in files if re.search(r"(?<!\\)\)[*+?]\+", file.read_text("utf-8"))]
    assert files
    assert found == []


@pytest.mark.parametrize(
    "pattern",
    [
        r"_session_([A-Za-z0-9_.:-]+)$",
        r"<invoke\s+name\s*=\s*(\"[^\"]*\"|'[^']*'|[^\s>]+)[^>\n]*>",
        r"\s*\n",
        r"(a|aa)+\Z",
        r"(?:\w+\s?)*:",
        r"begin.*end",
    ],
)
def test_what_is_not_linear_is_found(pattern: str) -> None:
    assert slowest(re.compile(pattern)) is not None


@pytest.mark.parametrize(
    "pattern",
    [r"(?<!\s)\s*+\n", r"a{1,20}b", r"[^\"\\]*+(?:\\.[^\"\\]*+)*+", r"begin.{0,50}end", r"\w+"],
)
def test_what_is_linear_is_not(pattern: str) -> None:
    assert slowest(re.compile(pattern)) is None
