"""A real browser: headless Chromium, driven by its chromedriver over W3C WebDriver.

    async with Browser(tmp_path) as browser:
        await browser.open("http://127.0.0.1:4100/mlx-stack/")
        await browser.until("return document.querySelector('.tier') !== null")

The protocol is a handful of HTTP calls, so this module uses no library for it. The flags keep the
browser from downloading anything and from asking any server but the page's.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Self

import httpx

AXE = Path(__file__).with_name("axe.min.js")  # axe-core 4.14.1; its licence is in axe.LICENSE.txt
_AXE_RUN = """
    const found = axe.run(document, {resultTypes: ["violations"]});
    return found.then(({violations}) => violations.map(({id, nodes}) =>
      `${id}: ${nodes.map(({html, failureSummary}) => html + " " + failureSummary).join("; ")}`));
"""
ARRIVAL_SECONDS = 30  # for a page, or for a condition in it; longer counts as a hang
PROGRAMS = ("chromium", "chromedriver")
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
)
_STARTED = re.compile(rb"started successfully on port (\d+)")
KEYS = {"ArrowLeft": "\ue012", "ArrowRight": "\ue014"} | {
    "Enter": "\ue007",
    "Escape": "\ue00c",
    "Tab": "\ue004",
}


class Browser:
    """One window, with a profile of its own."""

    def __init__(self, folder: Path) -> None:
        self._profile = folder / "profile"
        self._driver: asyncio.subprocess.Process | None = None
        self._client = httpx.AsyncClient(trust_env=False, timeout=ARRIVAL_SECONDS * 2, verify=False)
        self._session = ""

    async def __aenter__(self) -> Self:
        self._driver = await asyncio.create_subprocess_exec(
            "chromedriver", "--port=0", stdout=asyncio.subprocess.PIPE
        )
        assert self._driver.stdout is not None
        async with asyncio.timeout(ARRIVAL_SECONDS):
            while (found := _STARTED.search(await self._driver.stdout.readline())) is None:
                if self._driver.stdout.at_eof():
                    raise RuntimeError("chromedriver has ended")
        self._client.base_url = httpx.URL(f"http://127.0.0.1:{found[1].decode()}")
        try:
            await self._begin()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def _begin(self) -> None:
        options = {
            "binary": shutil.which("chromium"),
            "args": [*_FLAGS, f"--user-data-dir={self._profile}"],
        }
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        answer = await self._client.post("/session", json={"capabilities": {"alwaysMatch": wanted}})
        value = answer.json()["value"]
        assert answer.status_code == 200, value
        self._session = f"/session/{value['sessionId']}"

    async def __aexit__(self, *_: object) -> None:
        if self._session:
            await self._client.delete(self._session)
        await self._client.aclose()
        if self._driver is not None and self._driver.returncode is None:
            self._driver.terminate()
            await self._driver.wait()

    @contextlib.asynccontextmanager
    async def anew(self) -> AsyncIterator[Browser]:
        """The same window as if nobody had used it, for another event loop."""
        found = Browser(self._profile)
        found._client.base_url, found._session = self._client.base_url, self._session
        async with found._client:
            await found.open("about:blank")
            await found._command("Network.clearBrowserCookies", {})
            await found.complaints()
            yield found

    async def _ask(self, path: str, body: Any = None) -> Any:
        answer = await self._client.post(f"{self._session}/{path}", json=body or {})
        value = answer.json()["value"]
        assert answer.status_code == 200, value
        return value

    async def open(self, url: str) -> None:
        await self._ask("url", {"url": url})

    async def run(self, script: str, *arguments: Any) -> Any:
        """Run a script in the page and return its value."""
        return await self._ask("execute/sync", {"script": script, "args": list(arguments)})

    async def until(self, script: str, *arguments: Any) -> Any:
        """Run a script in the page until its value is true, and return that value."""
        try:
            async with asyncio.timeout(ARRIVAL_SECONDS):
                while not (found := await self.run(script, *arguments)):  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
                return found
        except TimeoutError:
            text = await self.text()
            raise AssertionError(f"never so: {script} {arguments}\nthe page: {text}") from None

    async def shows(self, text: str) -> None:
        """Wait until the page shows a text."""
        await self.until("return document.body.innerText.includes(arguments[0])", text)

    async def text(self) -> str:
        return str(await self.run("return document.body.innerText"))

    async def click(self, selector: str) -> None:
        await self.until("return document.querySelector(arguments[0])", selector)
        await self.run("document.querySelector(arguments[0]).click()", selector)

    async def press(self, *keys: str) -> None:
        """Press keys one after the other; the element with the focus gets them."""
        actions = []
        for key in keys:
            value = KEYS.get(key, key)
            actions += [{"type": "keyDown", "value": value}, {"type": "keyUp", "value": value}]
        await self._ask("actions", {"actions": [{"type": "key", "id": "k", "actions": actions}]})

    async def screen(
        self, width: int, height: int, *, scale: float = 1, dark: bool = False
    ) -> None:
        """Emulate a screen of this size, in CSS pixels; ``dark``: its preferred colour scheme."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": scale}
        mobile = {**metrics, "mobile": width < 600}
        await self._command("Emulation.setDeviceMetricsOverride", mobile)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self._command("Emulation.setEmulatedMedia", {"features": [scheme]})

    async def _command(self, name: str, given: dict[str, Any]) -> Any:
        return await self._ask("goog/cdp/execute", {"cmd": name, "params": given})

    async def cookies(self) -> list[dict[str, Any]]:
        answer = await self._client.get(f"{self._session}/cookie")
        found: list[dict[str, Any]] = answer.json()["value"]
        return found

    async def picture(self) -> bytes:
        """The window as PNG."""
        answer = await self._client.get(f"{self._session}/screenshot")
        return base64.b64decode(answer.json()["value"])

    async def barriers(self) -> list[str]:
        """Return what axe-core finds wrong with the page for people with a disability."""
        await self.run(AXE.read_text("utf-8"))
        found: list[str] = await self.run(_AXE_RUN)
        return found

    async def complaints(self) -> list[str]:
        """Return the browser's warnings and errors since the last call."""
        said = await self._ask("se/log", {"type": "browser"})
        return [one["message"] for one in said if one["level"] in ("WARNING", "SEVERE")]
