"""Pictures of the page for the documentation: `python -m scripts.page_pictures` takes them anew.

A real proxy shows a night (`tests/server/page/night.py`) and an exchange that it really mended,
in a real Chromium; light, dark, and on a phone.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

from tests.server.asking import body
from tests.server.calling import BAD, TOOLS, calling
from tests.server.page.night import put_night
from tests.support.browser import Browser
from tests.support.running_proxy import RunningProxy, running_proxy
from tests.support.scripted_server import ScriptedServer

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "pictures"
WIDE, PHONE = (1200, 1000), (390, 844)
NAMES = ("page-light.png", "page-dark.png", "page-phone.png", "page-exchange.png")


async def take(into: Path = FOLDER) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        changes = {
            "observability": {
                "log_level": "error",
                "capture_failures": True,
                "capture_path": str(folder / "failures"),
            },
            "reliability.tool_validation.max_retries": 2,
            "reliability.memory_pressure.enabled": True,
        }
        async with (
            ScriptedServer() as upstream,
            running_proxy(upstream.url, changes) as proxy,
            Browser(folder) as browser,
        ):
            await put_night(proxy.services.store, time.time())
            upstream.will(calling(BAD), calling('{"query": "where do quokkas live",}'))
            asked = body(messages=[{"role": "user", "content": "Where do quokkas live?"}])
            headers = {"X-MLX-Stack-Agent": "claude-code"}
            answer = await proxy.client.post(
                "/v1/chat/completions", json={**asked, "tools": TOOLS}, headers=headers
            )
            request_id = answer.headers["x-request-id"]
            await _all(browser, proxy, f"exchange/{request_id}", into)


async def _all(browser: Browser, proxy: RunningProxy, exchange: str, into: Path) -> None:
    wanted = (
        ("", "All that happened", WIDE, False),
        ("", "All that happened", WIDE, True),
        ("", "All that happened", PHONE, True),
        (exchange, "What the client got", (1200, 900), False),
    )
    for file, (view, text, (width, height), dark) in zip(NAMES, wanted, strict=True):
        await browser.open("about:blank")
        scale = 2 if width < 600 else 1.25
        await browser.screen(width, height, scale=scale, dark=dark)
        await browser.open(f"{proxy.url}/mlx-stack/#/{view}")
        await browser.shows(text)
        await browser.until("return !document.querySelector('[aria-busy]')")
        await browser.until("return document.fonts.ready.then(() => true)")
        (into / file).write_bytes(await browser.picture())


if __name__ == "__main__":
    asyncio.run(take())
