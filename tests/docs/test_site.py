"""The documentation builds as a site: no link leads nowhere, no page asks another server."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from html import escape
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote

import pytest
import yaml

from mlx_stack_proxy.operator import demo
from scripts import demo_picture, page_pictures
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
QUESTIONS = json.loads(files(demo).joinpath("questions.json").read_text("utf-8"))["questions"]
TABLED = sorted({*PAGES, *ROOT.glob("benchmarks/*.md")})
FENCED = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
DELIMITER = re.compile(r"\|(?: *:?-+:? *\|)+")
LOST_ROW = re.compile(r"<p>\|.*|\| *-{3,} *\|.*")
ITEM = re.compile(r"^([-*]|\d+\.) ")
MAX_WORDS = 28_000  # of docs/*.md; a table's bars and a heading's marks are no words


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


@pytest.mark.parametrize("page", TABLED, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_table_is_whole(page: Path) -> None:
    """A blank line within a table ends it, and a row with a bar too many loses a cell."""
    lines = ["", *FENCED.sub("", page.read_text("utf-8")).splitlines(), ""]
    columns = 0
    for line, following in pairwise(lines):
        if not line.startswith("|"):
            columns = 0
            assert not following.startswith("|") or not line.strip() or line.startswith("<!--"), (
                following
            )
            continue
        if not columns:
            assert DELIMITER.fullmatch(lines[lines.index(line) + 1]), f"no table: {line}"
        cells = line.count("|") - line.count(r"\|")
        assert not columns or cells == columns, line
        columns = cells


def test_no_row_of_a_table_is_running_text(site: Path) -> None:
    texts = {path.name: path.read_text("utf-8") for path in site.glob("*.html")}
    found = [(name, row) for name, text in texts.items() for row in LOST_ROW.findall(text)]
    assert found == []


def test_the_pages_stay_short() -> None:
    texts = [page.read_text("utf-8") for page in ROOT.glob("docs/*.md")]
    words = [word for text in texts for word in text.split() if re.search(r"\w", word)]
    assert len(words) <= MAX_WORDS


@pytest.mark.parametrize("name", sorted(DRAWINGS))
def test_a_picture_is_the_one_that_is_drawn(name: str) -> None:
    kept = (FOLDER / f"{name}.svg").read_text("utf-8")
    assert kept == DRAWINGS[name]().svg(), "`make references` draws it anew"


def test_there_is_no_other_picture() -> None:
    drawn = {f"{name}.svg" for name in DRAWINGS}
    taken = {demo_picture.NAME, *page_pictures.NAMES}
    assert {path.name for path in FOLDER.iterdir()} == drawn | taken


def test_the_picture_of_the_demo_shows_what_the_demo_asks() -> None:
    kept = (FOLDER / demo_picture.NAME).read_text("utf-8")
    for number, question in enumerate(QUESTIONS, 1):
        assert f"> {number} {escape(question[:20])}" in kept.replace(">10", "> 10")
    assert "10 of 10 through the proxy" in kept


def test_a_recorded_terminal_is_drawn_run_by_run() -> None:
    drawn = demo_picture.drawn("\x1b[31m✗ a < b\x1b[0m  \x1b[1;32m✓ c\x1b[0m\nUsable: 1 of 1\n")
    first, second, last = re.findall("<text.*</text>", drawn)[2:]
    assert 'fill="#ff7b72">✗ a &lt; b<' in first
    assert 'fill="#3fb950" font-weight="600">✓ c<' in second
    assert "Usable: 1 of 1" in last
