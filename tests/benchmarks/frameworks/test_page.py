"""docs/agents.md leads to the files of examples/, and has a section for each framework."""

from __future__ import annotations

import re

import pytest

from benchmarks.frameworks import page
from benchmarks.frameworks.catalogue import FRAMEWORKS
from benchmarks.frameworks.page import EXAMPLES, REPOSITORY, sections

PAGE = sections()


def test_the_page_leads_to_every_example() -> None:
    there = {path.relative_to(REPOSITORY).as_posix() for path in EXAMPLES.rglob("*.*")}
    linked = re.findall(r"\]\(\.\./(examples/[^)]+)\)", page.PAGE.read_text(encoding="utf-8"))
    assert {path for path in there if "__pycache__" not in path} == set(linked)


@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda one: one.folder)
def test_each_framework_has_its_section(framework: object) -> None:
    section = PAGE[framework.title]  # type: ignore[attr-defined]
    assert section.install.startswith(("pip install ", "npm install -g "))
    assert "install" not in section.run
    assert section.run.strip()


def test_a_section_is_read_as_it_stands() -> None:
    text = (
        "# Title\n\n```sh\nbefore\n```\n\n## One\n\n```python\n"
        "print(1)\n```\n\n```sh\npip install a 'b[c]'\npython a.py\n```\n\n    not run\n\n## Two\n"
    )
    found = sections(text)
    assert list(found) == ["One", "Two"]
    assert found["One"].install == "pip install a 'b[c]'"
    assert found["One"].run.split("\n") == ["", "python a.py", ""]
    assert found["Two"].scripts == []
