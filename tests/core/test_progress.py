"""What a call came to: news, work, or nothing; by names of tools and words of answers."""

from __future__ import annotations

import pytest

from app.core import call_keys, progress
from app.core.progress import News, Progress, changes_things
from app.core.tool_errors import says_nothing
from app.core.turn import Result


@pytest.mark.parametrize(
    ("tool", "changes"),
    [
        ("move_file", True),
        ("markAsRead", True),
        ("send_read_receipt", True),
        ("bash", None),
        ("label", None),
        ("mcp__search_server__add_item", True),
        ("browser_click", True),
        ("read_file", False),
        ("getOrderStatus", False),
        ("web_search", False),
        ("check_exists", False),
        ("mcp__notes__list_all", False),
        ("think", False),
        ("", None),
    ],
)
def test_what_a_tool_s_name_says(tool: str, changes: bool | None) -> None:
    assert changes_things(tool) is changes


def test_long_names_of_tools_and_parameters_stay_nowhere() -> None:
    """A cache of so many names would else be as large as so many requests."""
    caches = (progress._says, call_keys._parameters)
    before = [cache.cache_info().currsize for cache in caches]
    for number in range(50):
        long = f"{'n' * 100_000}{number}"
        assert changes_things(f"write_{long}") is True
        assert call_keys.read("f", {"path": "a", long: 1}) != call_keys.read("f", {"path": "a"})
    assert all(
        cache.cache_info().currsize <= size + 2 for cache, size in zip(caches, before, strict=True)
    )


@pytest.mark.parametrize(
    "text",
    [
        "nothing",
        "No results.",
        "[]",
        "{}",
        "0 rows affected",
        "Not found",
        "Found no matching files.",
        "The file is unchanged.",
        "Directory already exists",
        "No good search result was found",
        '{"results": [], "total": 0}',
        "Ничего не найдено.",
        "Es wurde nichts gefunden.",
        "没有找到匹配的文件",
    ],
)
def test_an_answer_that_nothing_came_of_it(text: str) -> None:
    assert says_nothing(text)


@pytest.mark.parametrize(
    "text",
    [
        "ok",
        "File moved successfully.",
        '{"status": "sent"}',
        "(no output)",
        "No errors.",
        "✓",
        "👍",
        "***",
        "Keine Fehler.",
        "没有错误",
        '{"id": 5, "errors": [], "labels": []}',
        "None",
        "12 rows affected",
        "Done, 3 files changed.",
        "A long text in which nothing is said. " * 20,
    ],
)
def test_an_answer_that_something_was_done(text: str) -> None:
    assert not says_nothing(text)


@pytest.mark.parametrize(
    ("tool", "arguments", "result", "came_to"),
    [
        ("move_file", {"n": 1}, Result(1, False, False), "WORK NONE WORK"),
        ("move_file", {"n": 1}, Result(1, False, True), "WORK UNKNOWN WORK"),
        ("move_file", {"n": 1}, Result(1, True, False), "NONE NONE NONE"),
        ("move_file", {"n": 1}, Result(1, False, False, True), "NEWS NONE NONE"),
        ("read_file", {"n": 1}, Result(1, False, False), "NEWS NONE NONE"),
        ("read_file", {"n": 1}, Result(1, False, False, brief=True), "NEWS NONE ALIKE"),
        ("read_file", {"n": 1}, Result(1, False, False, True, True), "NEWS NONE NONE"),
        ("read_file", {"n": 1}, Result(1, True, False), "NONE NONE NONE"),
        ("read_file", {"n": 1}, Result(1, False, True), "UNKNOWN UNKNOWN UNKNOWN"),
        ("read_file", {"n": 1}, None, "UNKNOWN UNKNOWN UNKNOWN"),
        ("set_text", {"content": "a"}, Result(1, False, False, True), "WORK NONE WORK"),
    ],
)
def test_what_a_call_came_to(
    tool: str, arguments: dict[str, object], result: Result | None, came_to: str
) -> None:
    """Made once, made again, and made with other arguments to the same result."""
    news = News()
    call = call_keys.read(tool, arguments)
    more = call_keys.read(tool, {**arguments, "more": 1})
    found = [news.of_call(call, result), news.of_call(call, result)]
    found.append(News(news).of_call(more, result))
    assert found == [Progress[name] for name in came_to.split()]
