"""What says by its structure that a call failed, as tools and agents were recorded with it."""

from __future__ import annotations

import pytest

from app.core.tool_errors import is_error
from tests.core.histories import USER, assistant, call, read, tool


@pytest.mark.parametrize(
    "text",
    [
        '{"error": "no such id"}',
        '{"success": false, "data": null}',
        '{"stdout": "", "exit_code": 127}',
        '{"isError": true, "content": []}',
        "<returncode>1</returncode>\n<output>\n</output>",
        "<output>\n" + "a line\n" * 500 + "</output>\n<exit_code>2</exit_code>",
        "Exit code: 1\nWall time: 0.1 seconds\nOutput:\nmake: *** no rule",
        "Command: make\nOutput: (empty)\nExit Code: 2\nSignal: (none)",
    ],
)
def test_an_error(text: str) -> None:
    assert is_error(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "42",
        "Forbidden City, Beijing: opened in 1925.",
        "failed: 0, passed: 20",
        "usage: 34%",
        "Error handling in Rust",
        "no. of rows: 12",
        "def f():\n    raise ValueError('Error: x')",
        '{"error": null, "data": [1]}',
        '{"exit_code": 0}',
        "<returncode>0</returncode>\n<output>Error: x</output>",
        "Exit code: 0\nOutput:\n1 failed",
        "the exit code: 1 is what make gives",
        "[1, 2]",
    ],
)
def test_no_error(text: str) -> None:
    assert not is_error(text)


def test_a_flag_of_the_message_s_own() -> None:
    failed = {**tool("no such file"), "is_error": True}
    for message, error in ((failed, True), (tool("no such file"), False)):
        (result,) = read([USER, assistant(call("f", {})), message]).results(0)
        assert result is not None
        assert result.error is error
