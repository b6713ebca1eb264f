"""A browser for the page: in CI there has to be one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.conftest import require_program
from tests.support.browser import PROGRAMS, Browser


@pytest.fixture(scope="session")
def running_browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One for all tests: to start it takes two seconds."""
    for program in PROGRAMS:
        require_program(program)
    found = Browser(tmp_path_factory.mktemp("browser"))
    with asyncio.Runner() as runner:
        runner.run(found.__aenter__())
        yield found
        runner.run(found.__aexit__())


@pytest.fixture
async def browser(running_browser: Browser) -> AsyncIterator[Browser]:
    async with running_browser.anew() as found:
        await found.screen(1280, 900)
        yield found
