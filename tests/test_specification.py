"""Each row of the specification that was built or mended has a test that names it.

A test names rows with ``@pytest.mark.specification(4, 18)``. The rows are numbered as in the audit
of the five documents and the design card, and docs/specification.md has those that stay different.
"""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parent
# The rows that the audit has as "to build", "to mend" or "say so".
OPENED = {4, 6, 11, 12, 15, 18, 20, 27, 28, 30, 31, 33, 34, 45, 72, 87, 93, 94, 97, 98, 101, 115}
OPENED |= {116, 117, 118, 122, 126, 130, 131, 135, 136, 147, 148, 149, 150, 151, 154, 157, 160}
OPENED |= {165, 170, 177, 178, 180, 182, 183}
# Departures that stay: docs/specification.md names each with its reason.
STAYING = {5, 6, 11, 12, 26, 27, 28, 30, 32, 33, 34, 46, 50, 51, 94, 110, 114, 115, 116, 117}
STAYING |= {118, 119, 126, 130, 131, 134, 135, 136, 138, 143, 146, 147, 148, 149, 152, 155, 157}
STAYING |= {159, 161, 162, 164, 166, 173, 175, 180, 182}
_NAMED = re.compile(r"mark\.specification\(([\d,\s]+)\)")


def named() -> set[int]:
    return {
        int(row)
        for path in TESTS.rglob("test_*.py")
        for rows in _NAMED.findall(path.read_text())
        for row in re.findall(r"\d+", rows)
    }


def test_each_opened_row_is_named_by_a_test() -> None:
    assert sorted(OPENED - named()) == []
    assert sorted(named() - OPENED) == []


def test_each_departure_that_stays_has_a_row_with_its_reason() -> None:
    page = (TESTS.parent / "docs" / "specification.md").read_text()
    rows = [line.split(" | ") for line in page.splitlines() if re.match(r"\| \d", line)]
    assert {int(row) for cells in rows for row in re.findall(r"\d+", cells[0])} == STAYING
    assert all(len(cells) == 4 and len(cells[3]) > 20 for cells in rows)
