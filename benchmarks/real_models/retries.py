"""What does a model answer when the proxy asks again?

    python -m benchmarks.real_models.retries http://127.0.0.1:8080 --guided never

Recorded first replies of a small model go to the proxy; wherever it asks again, the second reply
comes from a real model's server at the address given. Needs the corpus of real models' replies.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx
from aiohttp import web

from benchmarks import machine
from benchmarks.measure.corpora import CORPORA
from mlx_stack_proxy.tool_validation.check import Options, check_call
from mlx_stack_proxy.tool_validation.tools import tool_set
from tests.support.replies import completion
from tests.support.running_proxy import running_proxy

from .questions import is_text_call

Json = dict[str, Any]
_OURS = ("num_retries", "disable_fallbacks", "stream", "stream_options", "model")
_SETTINGS = {
    "reliability.tool_validation.max_retries": 3,
    "reliability.escalation.chain": ["fast"],
    "reliability.token_budget.downgrade_tier": "fast",
}


def recorded(model: str) -> Iterator[Json]:
    """Yield the recorded first replies of a model to requests with tools, each text once."""
    seen = set()
    for line in (CORPORA / "real-models" / "replies.jsonl").read_text().splitlines():
        row = json.loads(line)
        text = row["reply"]["content"]
        retried = "Your previous resp" in json.dumps(row["request"]["messages"])
        wanted = model in row["model"] and row["request"].get("tools") and not retried
        if wanted and (text, row.get("question")) not in seen:
            seen.add((text, row.get("question")))
            yield row


class Upstream:
    """Answers the first call of a request with the recorded reply, each further one for real."""

    def __init__(self, url: str) -> None:
        self._client = httpx.AsyncClient(base_url=url, timeout=600)
        self._first: Json | None = None
        self.asked = 0  # real replies to the present request

    def begin(self, row: Json) -> None:
        message = {"role": "assistant", "content": row["reply"]["content"]}
        usage = {"usage": row["usage"]} if row["usage"] else {}
        self._first = completion(message, row["finish_reason"] or "stop", **usage)
        self.asked = 0

    async def answer(self, request: web.Request) -> web.Response:
        if self._first is not None:
            first, self._first = self._first, None
            return web.json_response(first)
        self.asked += 1
        body = {key: value for key, value in (await request.json()).items() if key not in _OURS}
        reply = await self._client.post("/v1/chat/completions", json=body | {"seed": 3})
        return web.Response(
            body=reply.content, status=reply.status_code, content_type="application/json"
        )


def verdict(request: Json, response: httpx.Response) -> str:
    """Return what the client got in the end."""
    if response.status_code != 200:
        return f"HTTP {response.status_code}"
    message = response.json()["choices"][0]["message"]
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    tools, strict = tool_set(request["tools"]), Options(repair=False)
    if calls:
        wrong = any(check_call(c["name"], c["arguments"], tools, strict).failures for c in calls)
        return "an invalid call" if wrong else "a valid call"
    names = [tool["function"]["name"] for tool in request["tools"]]
    return "a call as text" if is_text_call(message["content"] or "", names) else "an answer"


async def run(url: str, model: str, guided: str) -> Counter[str]:
    """Return how many second replies came to what."""
    upstream, found = Upstream(url), Counter[str]()
    app = web.Application(client_max_size=1 << 26)
    app.router.add_post("/v1/chat/completions", upstream.answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    ((host, port),) = runner.addresses
    try:
        changes = {**_SETTINGS, "tiers.fast.guided": guided}
        async with running_proxy(f"http://{host}:{port}", changes) as proxy:
            for row in recorded(model):
                upstream.begin(row)
                body = {**row["request"], "model": "fast"}
                response = await proxy.client.post("/v1/chat/completions", json=body, timeout=900)
                if upstream.asked:
                    second = "" if upstream.asked == 1 else "after more retries, "
                    found[second + verdict(row["request"], response)] += 1
    finally:
        await runner.cleanup()
    return found


def main() -> None:
    """Print what came of the second replies."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", help="of the real model's server")
    parser.add_argument("--replies-of", default="0.5B", help="a part of the recorded model's name")
    parser.add_argument("--guided", default="auto", choices=["auto", "retry", "always", "never"])
    args = parser.parse_args()
    found = asyncio.run(run(args.url, args.replies_of, args.guided))
    typed = {"command": machine.command("benchmarks.real_models.retries", sys.argv[1:])}
    print(machine.heading({**typed, **machine.about()}))
    print(f"\nguided: {args.guided}; {found.total()} replies were asked about")
    for what, count in found.most_common():
        print(f"{count:4}  {what}")


if __name__ == "__main__":
    main()
