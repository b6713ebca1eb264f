"""docs/agents.md prints what runs: the files of examples/, a section for each framework."""

from __future__ import annotations

import pytest

from tests.frameworks.catalogue import FRAMEWORKS
from tests.frameworks.page import EXAMPLES, REPOSITORY, sections

PAGE = sections()
PRINTED = {path: text for section in PAGE.values() for path, text in section.files.items()}


def test_all_examples_are_printed() -> None:
    there = {path.relative_to(REPOSITORY).as_posix() for path in EXAMPLES.rglob("*.*")}
    assert there - {path for path in there if "__pycache__" in path} == set(PRINTED)


@pytest.mark.parametrize("path", PRINTED)
def test_a_printed_file_is_the_file(path: str) -> None:
    assert PRINTED[path] == (REPOSITORY / path).read_text(encoding="utf-8")


@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda one: one.folder)
def test_each_framework_has_its_section(framework: object) -> None:
    section = PAGE[framework.title]  # type: ignore[attr-defined]
    assert section.install.startswith(("pip install ", "npm install -g "))
    assert "install" not in section.run
    assert section.run.strip()


def test_a_section_is_read_as_it_stands() -> None:
    text = (
        "# Title\n\n```sh\nbefore\n```\n\n## One\n\n<!-- file: examples/a.py -->\n```python\n"
        "print(1)\n```\n\n```sh\npip install a 'b[c]'\npython a.py\n```\n\n    not run\n\n## Two\n"
    )
    found = sections(text)
    assert list(found) == ["One", "Two"]
    assert found["One"].files == {"examples/a.py": "print(1)\n"}
    assert found["One"].install == "pip install a 'b[c]'"
    assert found["One"].run.split("\n") == ["", "python a.py", ""]
    assert found["Two"].scripts == []
