"""A hook of MkDocs: what the site holds besides `docs/`, and links that lead out of there.

The pages are written to be read in the repository, where `../config.example.yaml` leads to the
file. In the site the same link leads to a copy of it.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
# Files of the repository that are pages of the site, too.
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "deploy/grafana/README.md": "dashboard.md",
    "benchmarks/ablation.md": "benchmark-ablation.md",
    "benchmarks/agents.md": "benchmark-agents.md",
    "benchmarks/clients.md": "benchmark-clients.md",
    "benchmarks/comparison.md": "comparison.md",
    "benchmarks/faults.md": "benchmark-faults.md",
    "benchmarks/frameworks.md": "benchmark-frameworks.md",
    "benchmarks/loops.md": "benchmark-loops.md",
    "benchmarks/performance.md": "benchmark-performance.md",
    "benchmarks/real-models.md": "benchmark-real-models.md",
    "benchmarks/scaling.md": "benchmark-scaling.md",
    "benchmarks/tool-calls.md": "benchmark-tool-calls.md",
}
_SOURCES = {page: source for source, page in PAGES.items()}
_COPIES = "files/"
_CODE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)")
_LINK = re.compile(r"(?<=\]\()(?P<path>[^)\s#:]+)(?P<anchor>#[^)\s]*)?(?=\))")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages from elsewhere, and the files that links lead to."""
    for source, page in PAGES.items():
        _add(files, config, page, ROOT / source)
    for source in sorted({one for text, at in _texts(files) for one in _linked(text, at)}):
        if _place(source).startswith(_COPIES):
            _add(files, config, _place(source), ROOT / source)
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The page's text with the links of the repository made those of the site."""
    here = page.file.src_uri
    source = _source(here)

    def rewritten(link: re.Match[str]) -> str:
        path = _resolved(link["path"], source)
        if not (ROOT / path).is_file():
            return link[0]  # MkDocs says that it leads nowhere
        away = posixpath.relpath(_place(path), posixpath.dirname(here) or ".")
        return away + (link["anchor"] or "")

    lines = _LINK.sub(rewritten, markdown).splitlines()
    return "\n".join(_bars(line) if line.startswith("|") else line for line in lines)


def _bars(row: str) -> str:
    """A table's row for MkDocs, which wants no backslash before a bar that is code."""
    return _CODE.sub(lambda code: code[0].replace(r"\|", "|"), row)


def _add(files: Files, config: Any, place: str, source: Path) -> None:
    files.append(File.generated(config, place, abs_src_path=str(source)))


def _texts(files: Files) -> Iterator[tuple[str, str]]:
    """The text of each page, and where in the repository it lies."""
    for file in files.documentation_pages():
        yield file.content_string, _source(file.src_uri)


def _linked(text: str, source: str) -> Iterator[str]:
    """The files of the repository that a text links to, by their paths."""
    for link in _LINK.finditer(text):
        path = _resolved(link["path"], source)
        if (ROOT / path).is_file():
            yield path


def _source(page: str) -> str:
    return _SOURCES.get(page, f"docs/{page}")


def _resolved(link: str, source: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), link))


def _place(source: str) -> str:
    """Where in the site a file of the repository is."""
    if source in PAGES:
        return PAGES[source]
    inside = source.removeprefix("docs/")
    return inside if inside != source else _COPIES + source
