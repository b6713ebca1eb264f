"""The documentation builds as a site: no link leads nowhere, no page asks another server."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest
import yaml

from scripts import page_pictures
from scripts.pictures import DRAWINGS, FOLDER

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    [*ROOT.glob("docs/**/*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"],
)
# What a browser fetches by itself; a link that a reader may follow is `<a href=…>`.
FETCHED = re.compile(
    r"""<(?:script|img|iframe|source|video|link)\b[^>]*\b(?:src|href)=["']?(?:https?:)?//[^>]*>"""
    r"""|url\(["']?(?:https?:)?//[^)]*\)|@import\s+["'](?:https?:)?//[^;]*"""
)
LINK = re.compile(r"""<a [^>]*href="((?![a-z]+:|/)[^"#]+)""")
ITEM = re.compile(r"^([-*]|\d+\.) ")


def build(folder: Path, config: Path) -> tuple[int, list[str]]:
    """The exit code, and each warning."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(config)]
    built = subprocess.run(
        [*command, "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    said = [line for line in built.stderr.splitlines() if not line.startswith("INFO")]
    return built.returncode, said


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    assert build(folder, ROOT / "mkdocs.yml") == (0, [])
    return folder


def test_a_dead_link_ends_the_build(tmp_path: Path) -> None:
    pages = tmp_path / "pages"
    pages.mkdir()
    (pages / "index.md").write_text("# Here\n\n[a](#here) [b](#there) [c](nowhere.md)\n")
    (pages / "lost.md").write_text("# In no menu\n")
    config = tmp_path / "mkdocs.yml"
    theirs = {"theme": {"name": "mkdocs"}, "hooks": [], "plugins": [], "nav": ["index.md"]}
    given = {"INHERIT": str(ROOT / "mkdocs.yml"), "docs_dir": str(pages), **theirs}
    config.write_text(yaml.safe_dump(given))
    code, said = build(tmp_path / "site", config)
    assert code != 0
    for wrong in ("#there", "nowhere.md", "lost.md"):
        assert any(wrong in line for line in said), said


def test_every_page_is_there(site: Path) -> None:
    made = {path.relative_to(site).with_suffix(".md") for path in site.rglob("*.html")}
    ours = {path.relative_to(ROOT / "docs") for path in ROOT.glob("docs/**/*.md")}
    assert ours <= made


def test_no_page_asks_another_server(site: Path) -> None:
    texts = [path.read_text("utf-8") for path in site.rglob("*.html")]
    texts += [path.read_text("utf-8") for path in site.rglob("*.css")]
    assert len(texts) > len(PAGES)
    assert [found[0] for text in texts for found in FETCHED.finditer(text)] == []


def test_what_a_page_links_to_is_in_the_site(site: Path) -> None:
    assert (site / "files/config.example.yaml").read_text() == (
        ROOT / "config.example.yaml"
    ).read_text()
    linked = {
        (page.parent / unquote(link)).resolve()
        for page in site.glob("*.html")
        for link in LINK.findall(page.read_text("utf-8"))
    }
    assert len(linked) > len(PAGES)
    assert [path for path in linked if not path.exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_list_stands_apart(page: Path) -> None:
    """Without a blank line before it a list is one in the repository, and running text here."""
    in_block = False
    before = ""
    for line in page.read_text("utf-8").splitlines():
        in_block ^= line.startswith("```")
        joined = before and not ITEM.match(before) and not before.startswith((" ", "#", "<!--"))
        assert in_block or not (ITEM.match(line) and joined), line
        before = line


@pytest.mark.parametrize("name", sorted(DRAWINGS))
def test_a_picture_is_the_one_that_is_drawn(name: str) -> None:
    kept = (FOLDER / f"{name}.svg").read_text("utf-8")
    assert kept == DRAWINGS[name]().svg(), "`make references` draws it anew"


def test_there_is_no_other_picture() -> None:
    drawn = {f"{name}.svg" for name in DRAWINGS}
    assert {path.name for path in FOLDER.iterdir()} == drawn | set(page_pictures.NAMES)
