"""The page in a real browser: what it shows, by which ways, and what it does with hostile text."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from scripts import page_pictures
from tests.server.asking import ask, body
from tests.server.calling import BAD, TOOLS, calling
from tests.server.capturing import captured
from tests.server.conftest import StartProxy
from tests.server.page.night import put_night
from tests.server.test_admin_access import KEY
from tests.support.browser import Browser
from tests.support.replies import litellm_error, text_stream
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import ScriptedServer
from tests.support.storing import add_events

Json = dict[str, Any]
COMMA = '{"query": "quokka",}'
RETRIES = {"reliability.tool_validation.max_retries": 2}

# Of the plot of tokens: the most points of the bars' colour one above the other.
HIGHEST_BAR = """
    const canvas = document.querySelector(".pair .plot canvas");
    if (!canvas) return false;
    const paint = canvas.getContext("2d");
    const { data } = paint.getImageData(0, 0, canvas.width, canvas.height);
    const style = getComputedStyle(document.documentElement);
    paint.fillStyle = style.getPropertyValue("--plot-in").trim();
    const wanted = [1, 3, 5].map((at) => parseInt(paint.fillStyle.slice(at, at + 2), 16));
    const columns = new Array(canvas.width).fill(0);
    for (let at = 0; at < data.length; at += 4)
      columns[(at / 4) % canvas.width] += wanted.every((value, n) => data[at + n] === value);
    const highest = Math.max(...columns);
"""
# The page asks for the status at once, not within two seconds.
LOOK = "document.dispatchEvent(new Event('visibilitychange'))"


async def put_right(proxy: RunningProxy, upstream: ScriptedServer) -> str:
    """An exchange whose first call is bad and whose second is mended. Its id."""
    upstream.will(calling(BAD), calling(COMMA))
    return str((await ask(proxy, tools=TOOLS)).headers["x-request-id"])


async def test_the_root_leads_to_the_tiers(proxy: RunningProxy, browser: Browser) -> None:
    proxy.upstream.will(text_stream("hello"))
    await ask(proxy)
    await browser.open(f"{proxy.url}/")
    await browser.until("return document.querySelectorAll('.tier').length === 2")
    assert await browser.run("return location.pathname") == "/mlx-stack/"
    for text in ("fast", "standard", "Ready", "0 of 4", "All well"):
        await browser.shows(text)
    # The figures go on by themselves.
    served = "document.querySelector('.tier .figure:last-child b').textContent"
    await browser.until(f"return {served} === '1'")
    proxy.upstream.will(text_stream("again"))
    await ask(proxy)
    await browser.run(LOOK)
    await browser.until(f"return {served} === '2'")
    assert await browser.complaints() == []


async def test_the_tokens_of_this_hour_are_drawn(proxy: RunningProxy, browser: Browser) -> None:
    proxy.upstream.will(text_stream("hello"))
    await ask(proxy)
    await browser.open(f"{proxy.url}/mlx-stack/")
    await browser.until("return document.querySelector('.overview:not([aria-busy])')")
    await browser.until(HIGHEST_BAR + "return highest > canvas.height / 4")


async def test_from_the_list_to_each_attempt_and_back_by_keyboard(
    start_proxy: StartProxy,
    browser: Browser,
    capturing: Json,
    folder: Path,
) -> None:
    proxy = await start_proxy({**capturing, **RETRIES})
    request_id = await put_right(proxy, proxy.upstream)
    await captured(folder, 2)
    await browser.open(f"{proxy.url}/mlx-stack/#/exchanges")
    await browser.until("return document.querySelector('a.row')")
    await browser.press("j", "Enter")
    await browser.shows("Attempt 2")
    assert await browser.run("return location.hash") == f"#/exchange/{request_id}"
    text = await browser.text()
    assert "Not delivered: an invalid tool call" in text
    assert 'missing required field "query"' in text
    assert "Mended and delivered" in text
    # The change is marked where it was made.
    assert await browser.run("return document.querySelector('del').textContent") == ","
    got = "return [...document.querySelectorAll('.attempt.good pre')].at(-1).textContent"
    assert await browser.run(got) == '→ search({"query": "quokka"})'
    await browser.press("Escape")
    await browser.until("return document.querySelector('a.row')")
    assert await browser.complaints() == []


async def test_filters_stand_in_the_address_and_a_link_leads_there(
    start_proxy: StartProxy, browser: Browser
) -> None:
    proxy = await start_proxy(RETRIES)
    await put_right(proxy, proxy.upstream)
    proxy.upstream.always(litellm_error(500, "no"))
    await ask(proxy)
    await browser.open(f"{proxy.url}/mlx-stack/#/exchanges?since=1h")
    await browser.until("return document.querySelectorAll('a.row').length === 2")
    await browser.run(
        "const kind = document.querySelector('select[name=kind]');"
        "kind.value = 'exhausted'; kind.dispatchEvent(new Event('change'))"
    )
    await browser.until("return document.querySelectorAll('a.row').length === 1")
    link = await browser.run("return location.href")
    assert link.endswith("#/exchanges?since=1h&kind=exhausted")
    await browser.open("about:blank")
    await browser.open(link)
    await browser.until("return document.querySelectorAll('a.row').length === 1")
    chosen = "return [...document.querySelectorAll('select')].map((one) => one.value)"
    assert await browser.run(chosen) == ["1h", "exhausted"]


async def test_a_night_is_told_by_the_hour_and_by_agent(
    proxy: RunningProxy, browser: Browser
) -> None:
    await put_night(proxy.services.store, proxy.services.wall_clock())
    report = (await proxy.client.get("/mlx-stack/report?since=12h")).json()
    await browser.open(f"{proxy.url}/mlx-stack/")
    await browser.until("return document.querySelector('.overview:not([aria-busy])')")
    totals = report["totals"]
    mended = totals["repaired"] + totals["found_in_text"]
    legend = await browser.run("return document.querySelector('.legend').innerText")
    assert f"{mended} mended" in legend and f"{totals['errors']} failed" in legend
    text = await browser.text()
    assert "LiteLLM out of reach, 24 min" in text and "fast: breaker open, 12 min" in text
    assert "Errors that clients got: " in text and "mlx-stack-proxy why" not in text
    # The hour that is chosen by key is told in words.
    await browser.run("document.querySelector('.timeline .plot').focus()")
    await browser.press("ArrowLeft", "ArrowLeft")
    told = await browser.run("return document.querySelector('.timeline .note').textContent")
    hour = report["hours"][-1]["hour"] - 3600
    rows = [row["counts"] for row in report["hours"] if row["hour"] == hour]
    once = sum(row.get("right_at_once", 0) for row in rows)
    assert f"{once} right at once" in told
    # An agent, its sessions, an exchange: each is a link.
    await browser.click("tbody a[href*='agent=codex']")
    await browser.shows("Only codex.")
    await browser.click("a[href*='exchanges?agent=codex']")
    await browser.until("return document.querySelectorAll('.sessions .chip').length > 1")
    agents = (
        "return [...document.querySelectorAll('.where')].every((e) => /codex/.test(e.textContent))"
    )
    assert await browser.run(agents)
    before = await browser.run("return document.querySelectorAll('a.row').length")
    await browser.click(".sessions .chip")
    await browser.until(f"return document.querySelectorAll('a.row').length < {before}")
    assert "agent=codex" in await browser.run("return location.hash")
    assert await browser.complaints() == []


HOSTILE = (
    '<img src=x onerror="window.attacked=1"><script>window.attacked=1</script>'
    '</pre></li><svg onload=window.attacked=1><a href="javascript:window.attacked=1">x</a>'
)


async def test_what_others_wrote_is_text(
    start_proxy: StartProxy,
    browser: Browser,
    capturing: Json,
    folder: Path,
) -> None:
    """Hostile text in all that a client, a model or a server has a say in."""
    proxy = await start_proxy({**capturing, **RETRIES, "tiers.fast.model": "fast"})
    tool = {"type": "function", "function": {"name": HOSTILE, "parameters": {"required": ["q"]}}}
    headers = {"X-MLX-Stack-Session": HOSTILE, "X-MLX-Stack-Agent": HOSTILE}
    said = [{"role": "user", "content": HOSTILE}]
    proxy.upstream.will(
        calling(json.dumps({"a": HOSTILE}), {"content": HOSTILE, "reasoning": HOSTILE}),
        calling(json.dumps({"a": HOSTILE}), {"content": HOSTILE}, name=HOSTILE),
        litellm_error(500, HOSTILE),
    )
    proxy.upstream.always(litellm_error(500, HOSTILE))
    asked = body(messages=said, tools=[*TOOLS, tool])
    response = await proxy.client.post("/v1/chat/completions", json=asked, headers=headers)
    request_id = response.headers["x-request-id"]
    while not (await proxy.client.get(f"/mlx-stack/exchanges/{request_id}")).json()["captured"]:
        pass
    for view in ("", "exchanges", f"exchange/{request_id}", f"exchange/{HOSTILE}"):
        await browser.open("about:blank")
        await browser.open(f"{proxy.url}/mlx-stack/#/{view}")
        await browser.until(
            "return !document.querySelector('[aria-busy]') && Boolean(window.uPlot)"
        )
        await browser.shows("fast" if HOSTILE not in view else "nothing is kept")
        assert await browser.run("return window.attacked ?? null") is None
        made = "return document.querySelectorAll('main img, main script, main [onload]').length"
        assert await browser.run(made) == 0
        links = "return [...document.links].every((one) => one.protocol === 'http:')"
        assert await browser.run(links)
        if view.startswith("exchange/req"):
            assert HOSTILE in await browser.text()
    complaints = await browser.complaints()
    assert [one for one in complaints if "404" not in one] == []
    # And markup that came in all the same would be refused by the policy.
    refused = "try { document.body.innerHTML = '<b>x</b>'; return false } catch { return true }"
    assert await browser.run(refused)


async def test_the_key_is_asked_for_once_and_never_in_the_address(
    upstream: ScriptedServer, start_proxy: StartProxy, browser: Browser
) -> None:
    proxy = await start_proxy({"server.admin_key": KEY})
    await browser.open(f"{proxy.url}/mlx-stack/#/exchanges?kind=exhausted")
    await browser.until("return document.activeElement.id === 'key'")
    await browser.press(*"wrong", "Enter")
    await browser.shows("That is not the key.")
    await browser.press(*KEY, "Enter")
    await browser.shows("What happened")
    assert await browser.run("return location.hash") == "#/exchanges?kind=exhausted"
    assert await browser.run("return document.cookie") == ""  # no script sees it
    (cookie,) = await browser.cookies()
    assert cookie["httpOnly"] and cookie["sameSite"] == "Strict" and KEY not in cookie["value"]
    await browser.open("about:blank")
    await browser.open(f"{proxy.url}/mlx-stack/")
    await browser.until("return document.querySelector('.tier')")
    assert KEY not in await browser.run(
        "return location.href + performance.getEntries().map(e => e.name)"
    )
    await browser.click("#sign-out:not([hidden])")
    await browser.until("return document.activeElement.id === 'key'")
    assert await browser.cookies() == []


async def test_on_a_phone_nothing_sticks_out(start_proxy: StartProxy, browser: Browser) -> None:
    proxy = await start_proxy(RETRIES)
    request_id = await put_right(proxy, proxy.upstream)
    for dark in (False, True):
        await browser.screen(360, 740, scale=2, dark=dark)
        for view, text in (
            ("", "Memory"),
            ("exchanges", "shown"),
            (f"exchange/{request_id}", "Events"),
        ):
            await browser.open(f"{proxy.url}/mlx-stack/#/{view}")
            await browser.shows(text)
            wide = "return [document.documentElement.scrollWidth, window.innerWidth]"
            width, most = await browser.run(wide)
            assert width <= most == 360
        back = await browser.run("return getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, back[4:-1].split(","))) < 200) is dark


GONE = f"window.fetch = () => Promise.reject(new TypeError('gone')); {LOOK}"
GREY = "return getComputedStyle(document.querySelector('main')).filter === 'grayscale(1)'"
# The plots' canvases, each as wide as the place that it is drawn in.
DRAWN = """
    const places = [...document.querySelectorAll(".plot")].filter((one) => one.clientWidth);
    return places.length > 1 && places.every((place) =>
      Math.abs(place.querySelector(".uplot")?.clientWidth - place.clientWidth) < 2);
"""


async def test_a_proxy_that_is_gone_turns_the_page_grey_until_it_is_back(
    proxy: RunningProxy, browser: Browser
) -> None:
    await browser.open(f"{proxy.url}/mlx-stack/")
    await browser.shows("All well")
    await browser.until("return document.querySelector('.overview:not([aria-busy])')")
    assert not await browser.run(GREY)
    await browser.run(f"window.fetched = window.fetch; {GONE}")
    await browser.shows("No answer from the proxy")
    assert re.search(r"last answer \d\d:\d\d:\d\d", await browser.text())
    assert await browser.run(GREY)
    await browser.shows("Tiers")
    await browser.run(
        "window.fetch = () => Promise.resolve(new Response("
        f"JSON.stringify({{error: {{message: 'the store fails'}}}}), {{status: 503}})); {LOOK}"
    )
    await browser.shows("the store fails")
    await browser.shows("Tiers")
    await browser.run(f"window.fetch = window.fetched; {LOOK}")
    await browser.shows("All well")
    assert not await browser.run(GREY)
    assert "the store fails" not in await browser.text()
    await proxy.upstream.stop()
    await browser.run(LOOK)
    await browser.shows("LiteLLM is down")
    await browser.shows("LiteLLM can't be reached:")


async def test_plots_come_back_after_a_failed_load_and_fit_a_wider_screen(
    proxy: RunningProxy, browser: Browser
) -> None:
    await put_night(proxy.services.store, proxy.services.wall_clock())
    await browser.screen(360, 740)
    await browser.open(f"{proxy.url}/mlx-stack/#/exchanges")
    await browser.until("return document.querySelector('a.row')")
    # The first report fails.
    await browser.run(
        "window.fetched = window.fetch; window.fetch = (path, given) => /report/.test(path)"
        "? Promise.resolve(new Response('{}', {status: 503})) : window.fetched(path, given);"
        "location.hash = '#/'"
    )
    await browser.shows("status 503")
    assert await browser.run("return document.querySelectorAll('h1').length") == 1
    await browser.run(f"window.fetch = window.fetched; {LOOK}")
    await browser.until(DRAWN)
    for width in (1280, 360):
        await browser.screen(width, 900)
        await browser.until(DRAWN)


async def test_fourteen_days_are_days(proxy: RunningProxy, browser: Browser) -> None:
    await put_night(proxy.services.store, proxy.services.wall_clock())
    await browser.open(f"{proxy.url}/mlx-stack/#/?since=14d")
    await browser.until("return document.querySelector('.overview:not([aria-busy])')")
    await browser.run("document.querySelector('.timeline .plot').focus()")
    await browser.press("ArrowLeft")
    words = await browser.until("return document.querySelector('.timeline .note').textContent")
    assert re.match(r"(\d+ \w+|\w+ \d+): ", words), words
    for title, text in (("Tokens", "read and written"), ("Memory pressure", "normal now")):
        legend = (
            f"[...document.querySelectorAll('figure')].find((one) => /{title}/.test(one.innerText))"
        )
        assert text in await browser.run(f"return {legend}.querySelector('.legend').innerText")


async def test_attempts_and_events_that_are_the_same_are_shown_once(
    start_proxy: StartProxy,
    browser: Browser,
    capturing: Json,
    folder: Path,
) -> None:
    proxy = await start_proxy({**capturing, **RETRIES})
    proxy.upstream.always(calling(BAD))
    request_id = (await ask(proxy, tools=TOOLS)).headers["x-request-id"]
    tried = len(proxy.upstream.calls)
    await captured(folder, tried)
    await browser.open(f"{proxy.url}/mlx-stack/#/exchange/{request_id}")
    await browser.shows("Attempts 1 to 2 · fast")
    await browser.shows("Attempts 3 to 4 · standard")
    assert tried == 4
    text = await browser.text()
    assert text.count('missing required field "query"') == 2
    assert text.count("Invalid call") == 2 and text.count("(2×)") == 2


@pytest.mark.parametrize(
    ("width", "dark"), [(1280, False), (1280, True), (360, False), (360, True)]
)
async def test_nobody_is_kept_out(
    width: int, dark: bool, start_proxy: StartProxy, browser: Browser
) -> None:
    """Contrast, labels, headings, the keyboard: what axe-core finds, in each view."""
    proxy = await start_proxy({**RETRIES, "reliability.memory_pressure.enabled": True})
    await put_night(proxy.services.store, proxy.services.wall_clock())
    request_id = await put_right(proxy, proxy.upstream)
    await browser.screen(width, 900, dark=dark)
    for view in ("", "?since=14d&agent=codex", "exchanges", f"exchange/{request_id}"):
        await browser.open(f"{proxy.url}/mlx-stack/#/{view}")
        await browser.until("return !document.querySelector('main [aria-busy]')")
        await browser.until("return document.querySelector('main .panel')")
        assert await browser.barriers() == [], view
        assert await browser.run("return document.querySelectorAll('h1').length") == 1
        # No badge runs into the text next to it.
        assert await browser.run(
            "const right = (one) => one.getBoundingClientRect().right;"
            "return [...document.querySelectorAll('.row .pill')].every((one) =>"
            " one.scrollWidth <= one.clientWidth + 1 && right(one) <= right(one.parentNode) + 1)"
        )
    await browser.run(GONE)
    await browser.shows("No answer from the proxy")
    assert await browser.barriers() == []


async def test_the_form_keeps_nobody_out(start_proxy: StartProxy, browser: Browser) -> None:
    proxy = await start_proxy({"server.admin_key": KEY})
    await browser.open(f"{proxy.url}/mlx-stack/")
    await browser.until("return document.activeElement.id === 'key'")
    assert await browser.barriers() == []


async def test_the_pictures_of_the_documentation_can_be_taken(
    tmp_path: Path, browser: Browser
) -> None:
    await page_pictures.take(tmp_path)
    taken = {name: (tmp_path / name).read_bytes() for name in page_pictures.NAMES}
    assert all((page_pictures.FOLDER / name).exists() for name in taken)
    assert all(
        picture.startswith(b"\x89PNG") and len(picture) > 30_000 for picture in taken.values()
    )


async def test_events_are_paged_by_the_server(proxy: RunningProxy, browser: Browser) -> None:
    now, many = proxy.services.wall_clock(), 300
    common = {
        "kind": "tool_call_repaired",
        "session": "0123456789abcdef0123456789abcdef",
        "tier": "fast",
        "detail": {"repair": "trailing_comma"},
    }
    events = [
        {**common, "time": now - (many - number) / 10, "request_id": f"req_{number}"}
        for number in range(many)
    ]
    await add_events(proxy.services.store, events)
    await browser.open(f"{proxy.url}/mlx-stack/#/exchanges")
    for page in range(2):
        newest = f"#/exchange/req_{many - 1 - page * 100}"
        await browser.until(f"return document.querySelector('a.row')?.hash === '{newest}'")
        assert await browser.run("return document.querySelectorAll('a.row').length") == 100
        await browser.click("a[rel=next]")
    await browser.open(f"{proxy.url}/mlx-stack/#/exchange/req_17")
    await browser.shows("Call mended")
    assert await browser.complaints() == []
