"""A browser beside the proxy: in CI there has to be one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.conftest import require_program
from tests.server.conftest import no_key_of_this_machine, proxy, start_proxy  # noqa: F401
from tests.support.browser import PROGRAMS, Browser


@pytest.fixture
async def browser(tmp_path: Path) -> AsyncIterator[Browser]:
    for program in PROGRAMS:
        require_program(program)
    async with Browser(tmp_path) as found:
        await found.screen(1280, 900)
        yield found
