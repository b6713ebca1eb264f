"""How the page is served: to whom, under which policy, and the cookie for the key."""

from __future__ import annotations

import re

import httpx
import pytest

from mlx_stack_proxy.server import page_cookie
from mlx_stack_proxy.server.web_page import FOLDER
from tests.server.conftest import StartProxy
from tests.server.test_admin_access import KEY, client
from tests.support.clock import Clock

BROWSER = {"Accept": "text/html,application/xhtml+xml", "Sec-Fetch-Mode": "navigate"}
LINK = {**BROWSER, "Sec-Fetch-Dest": "document", "Sec-Fetch-Site": "cross-site"}
PAGE = "/mlx-stack/"
FILES = [PAGE, *(f"/mlx-stack/page/{path.name}" for path in sorted(FOLDER.iterdir()))]


@pytest.mark.parametrize("path", FILES)
async def test_each_file_is_there_under_a_strict_policy(path: str) -> None:
    async with client("127.0.0.1") as here:
        answer = await here.get(path)
        assert answer.status_code == 200 and answer.content
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy and "http" not in policy and "*" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        again = await here.get(path, headers={"If-None-Match": answer.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")


def test_the_files_name_no_foreign_host_and_have_nothing_inline() -> None:
    for path in FOLDER.iterdir():
        text = path.read_text("utf-8")
        if path.suffix in (".js", ".css", ".html") and "uPlot" not in path.name:
            assert set(re.findall(r"https?://[\w.-]+", text)) <= {"http://www.w3.org"}
            assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", text)
            assert len(text.splitlines()) <= 400
    html = (FOLDER / "index.html").read_text("utf-8")
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\son\w+=|\sstyle=", html)
    assert "Leon Sorokin" in (FOLDER / "uPlot.LICENSE.txt").read_text("utf-8")


async def test_the_root_sends_a_browser_there_and_nobody_else() -> None:
    async with client("127.0.0.1") as here:
        sent = await here.get("/", headers=BROWSER)
        assert (sent.status_code, sent.headers["location"]) == (307, PAGE)
        assert (await here.get("/")).status_code == 404


async def test_a_link_from_elsewhere_opens_the_page_and_nothing_else() -> None:
    async with client("127.0.0.1") as here:
        assert (await here.get(PAGE, headers=LINK)).status_code == 200
        assert (await here.get("/", headers=LINK)).status_code == 307
        for headers in (
            {**LINK, "Sec-Fetch-Dest": "iframe"},
            {**LINK, "Sec-Fetch-Mode": "no-cors"},
            {**LINK, "Origin": "http://evil.example"},
            {**LINK, "Host": "evil.example"},
        ):
            assert (await here.get(PAGE, headers=headers)).status_code == 403
        for path in ("/mlx-stack/status", "/mlx-stack/page/page.js", "/v1/models"):
            assert (await here.get(path, headers=LINK)).status_code == 403
        assert (await here.post("/mlx-stack/sign-in", headers=LINK)).status_code == 403


@pytest.mark.parametrize("path", [PAGE, "/mlx-stack/page/page.js", "/mlx-stack/exchanges/x"])
async def test_without_a_key_it_is_this_machines(path: str) -> None:
    async with client("192.168.1.5") as elsewhere:
        assert (await elsewhere.get(path, headers=BROWSER)).status_code == 403
        assert (await elsewhere.post("/mlx-stack/sign-in")).status_code == 403


async def signed_in(anywhere: httpx.AsyncClient, **headers: str) -> str:
    answer = await anywhere.post("/mlx-stack/sign-in", data={"key": KEY}, headers=headers)
    assert answer.status_code == 204
    return answer.headers["set-cookie"]


async def test_the_key_once_in_a_form_opens_what_is_read() -> None:
    async with client("192.168.1.5", "box.lan:4100", admin_key=KEY) as anywhere:
        assert (await anywhere.get(PAGE, headers=BROWSER)).status_code == 200  # it shows the form
        assert (await anywhere.get("/mlx-stack/status")).status_code == 401
        set_cookie = await signed_in(anywhere)
        assert KEY not in set_cookie and "Secure" not in set_cookie
        for part in ("HttpOnly", "SameSite=strict", "Path=/mlx-stack/"):
            assert part in set_cookie.split("; ")
        # From here on the client sends the cookie.
        for path in ("status", "page/page.js"):
            assert (await anywhere.get(f"/mlx-stack/{path}")).status_code == 200
        # It may look, and change nothing; it opens nothing else.
        assert (await anywhere.delete("/mlx-stack/sessions/x")).status_code == 401
        assert "Max-Age=0" in (await anywhere.post("/mlx-stack/sign-out")).headers["set-cookie"]
        assert (await anywhere.get("/mlx-stack/status")).status_code == 401


async def test_over_tls_the_cookie_stays_with_it() -> None:
    async with client("192.168.1.5", "box.lan", admin_key=KEY) as anywhere:
        assert "Secure" in await signed_in(anywhere, Origin="https://box.lan")


@pytest.mark.parametrize("given", ["", "sk-admi", "sk-adminn", "x" * 9000, "key=" * 50])
async def test_another_key_gets_no_cookie(given: str) -> None:
    async with client("192.168.1.5", "box.lan", admin_key=KEY) as anywhere:
        answer = await anywhere.post("/mlx-stack/sign-in", data={"key": given})
        assert answer.status_code in (401, 413) and "set-cookie" not in answer.headers
        body = b"&".join([b"key=a"] * 50)
        answer = await anywhere.post("/mlx-stack/sign-in", content=body)
        assert answer.status_code == 401 and "set-cookie" not in answer.headers


async def test_a_cookie_ends_and_belongs_to_its_key(start_proxy: StartProxy) -> None:
    clock = Clock()
    proxy = await start_proxy({"server.admin_key": KEY}, wall_clock=clock)
    await signed_in(proxy.client)
    clock.now += page_cookie.SECONDS - 1
    assert (await proxy.client.get("/mlx-stack/status")).status_code == 200
    clock.now += 2
    assert (await proxy.client.get("/mlx-stack/status")).status_code == 401
    for value in ("", ".", "9999999999.", "9999999999.00", "x.y", "9" * 40 + ".a"):
        cookie = {"Cookie": f"{page_cookie.NAME}={value}"}
        proxy.client.cookies.clear()
        assert (await proxy.client.get("/mlx-stack/status", headers=cookie)).status_code == 401
    made = f"{page_cookie.NAME}={page_cookie.made('another', clock())}"
    answer = await proxy.client.get("/mlx-stack/status", headers={"Cookie": made})
    assert answer.status_code == 401
