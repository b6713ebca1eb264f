"""What a weak model's own loops cost, without the proxy and with it.

    python -m benchmarks.measure.loops_cut --base-url http://127.0.0.1:4100 \
        --direct-url http://127.0.0.1:8081 --direct-model default_model

Starts nothing: `--base-url` is the proxy of `make run`, `--direct-url` what stands behind it:
LiteLLM (its key in LITELLM_MASTER_KEY), or the tier's own model server. Both get the requests of
deploy/local/demo_tiers after which `fast` is known to write or to think without end, and then
agents that run what it calls, where it is known to call the same again. The proxy is asked twice:
with `X-MLX-Stack-Escalation: off`, so that only `fast` answers, and without.

Directly, tokens are what the server counted. Through the proxy they are what its /metrics counted,
over all tiers and attempts; of a reply that was cut there is no count, and it is estimated at 4
bytes a token, as the proxy does for its budgets. Nobody else should use the proxy meanwhile.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "deploy" / "local"))

from demo_tiers import questions, tools, weaken

Json = dict[str, Any]
TIMEOUT_SECONDS = 600
MAX_REQUESTS = 12  # of one agent
ENDLESS = ("repeated_text", "endless_thinking")  # habits of the weak tier
ESCALATION_OFF = {"X-MLX-Stack-Escalation": "off"}
_SERIES = re.compile(r"^mlx_stack_(\w+?)_total(?:\{(.*)\})? (\S+)$", re.MULTILINE)


@dataclass
class Figures:
    """What one way of asking came to. ``tokens``: generated ones, of all replies."""

    tokens: int = 0
    longest: int = 0  # characters of a delivered reply
    requests: int = 0
    at_limit: int = 0  # replies that only the token limit ended
    errors: Counter[str] = field(default_factory=Counter)
    loops: Counter[str] = field(default_factory=Counter)
    saved: int = 0
    seconds: float = 0.0


class Server:
    """One OpenAI-compatible server."""

    def __init__(self, url: str, model: str, limit: int, headers: Mapping[str, str]) -> None:
        self._url = url.rstrip("/").removesuffix("/v1")
        self._common: Json = {"model": model, "tools": tools.TOOLS, "max_tokens": limit}
        key = os.environ.get("LITELLM_MASTER_KEY", "local")
        self._headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
        self._headers |= headers

    def begin_session(self) -> None:
        """What the proxy remembers of those that asked the same before must not count."""
        self._headers["X-MLX-Stack-Session"] = f"loops-cut-{uuid.uuid4().hex}"

    def ask(self, messages: list[Json], figures: Figures) -> Json | None:
        """The message that is the reply; None where there is an error instead."""
        figures.requests += 1
        body = json.dumps({**self._common, "messages": messages}).encode()
        url = f"{self._url}/v1/chat/completions"
        try:
            request = urllib.request.Request(url, body, self._headers)
            with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as reply:
                whole = json.load(reply)
        except urllib.error.HTTPError as error:
            figures.errors[_error_type(error)] += 1
            return None
        except OSError as error:  # mlx_lm.server drops the connection over some calls
            figures.errors[type(error).__name__] += 1
            return None
        choice = whole["choices"][0]
        message: Json = choice["message"]
        figures.tokens += whole.get("usage", {}).get("completion_tokens", 0)
        figures.at_limit += choice["finish_reason"] == "length"
        said = [message.get("content"), message.get("reasoning_content"), message.get("reasoning")]
        said += [call["function"]["arguments"] for call in message.get("tool_calls") or ()]
        figures.longest = max(figures.longest, sum(len(one or "") for one in said))
        return message

    def counted(self) -> Counter[str]:
        """The proxy's own counters that are of interest here."""
        with urllib.request.urlopen(f"{self._url}/metrics", timeout=60) as reply:
            text = reply.read().decode()
        found: Counter[str] = Counter()
        for name, labels, value in _SERIES.findall(text):
            if name == "tokens" and 'direction="output"' in labels:
                found["tokens"] += round(float(value))
            elif name == "tokens_saved":
                found["saved"] += round(float(value))
            elif name == "loops":
                given = dict(re.findall(r'(\w+)="([^"]*)"', labels))
                found[f"{given['detector']} {given['action']}"] += round(float(value))
        return found


def _error_type(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.load(error)["error"]["type"])
    except (ValueError, KeyError, TypeError):
        return str(error.code)


def endless(seed: int, count: int) -> Iterator[str]:
    """Requests after which ``fast`` has learnt never to stop."""
    asked = questions.questions(seed, "unseen", 100 * count)
    found = (q.text for q in asked if weaken.habit(q.text, q.tool) in ENDLESS)
    yield from (text for _, text in zip(range(count), found, strict=False))


def repeating(seed: int, count: int) -> Iterator[str]:
    """Requests after which ``fast`` has learnt to make the same call again and again."""
    asked = questions.questions(seed, "unseen", 100 * count)
    found = (q.text for q in asked if q.tool == weaken.REPEATING and q.text.endswith("."))
    yield from (text for _, text in zip(range(count), found, strict=False))


def one_reply(server: Server, text: str, figures: Figures) -> None:
    server.ask([{"role": "user", "content": text}], figures)


def agent(server: Server, text: str, figures: Figures) -> None:
    """Run what is called, and ask again, until the model is done, or the patience is."""
    world = tools.World()
    messages: list[Json] = [{"role": "user", "content": text}]
    for _ in range(MAX_REQUESTS):
        message = server.ask(messages, figures)
        calls = (message or {}).get("tool_calls")
        if not message or not calls:
            return
        messages.append({"role": "assistant", "content": None, "tool_calls": calls})
        for call in calls:
            made = call["function"]
            result = world.call_json(made["name"], made["arguments"])
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})


def measured(server: Server, work: Any, texts: Iterable[str], *, is_proxy: bool) -> Figures:
    """All of the requests, one after the other."""
    figures = Figures()
    before = server.counted() if is_proxy else Counter()
    begun = time.monotonic()
    for text in texts:
        server.begin_session()
        work(server, text, figures)
    figures.seconds = time.monotonic() - begun
    if is_proxy:
        grown = server.counted() - before
        figures.tokens, figures.saved = grown.pop("tokens", 0), grown.pop("saved", 0)
        figures.loops = grown
    return figures


def report(title: str, rows: Mapping[str, Figures]) -> str:
    columns = f"{'requests':>9}{'tokens':>9}{'at limit':>9}{'longest':>9}{'seconds':>9}"
    lines = [title, f"{'':26}{columns}"]
    for name, one in rows.items():
        lines.append(
            f"{name:26}{one.requests:9}{one.tokens:9,}{one.at_limit:9}{one.longest:9,}"
            f"{one.seconds:9.0f}"
        )
        for what, counts in (("loops", one.loops), ("errors", one.errors)):
            if counts:
                said = ", ".join(f"{number} × {kind}" for kind, number in counts.most_common())
                lines.append(f"{'':4}{what}: {said}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--base-url", required=True, help="the proxy")
    parser.add_argument("--direct-url", required=True, help="LiteLLM, or the tier's model server")
    parser.add_argument("--model", default="fast")
    parser.add_argument("--direct-model", help="its name there (default: as --model)")
    parser.add_argument("-n", type=int, default=20, help="requests of each kind")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--max-tokens", type=int, default=2048)
    args = parser.parse_args()
    limit = args.max_tokens
    servers = {
        "directly": Server(args.direct_url, args.direct_model or args.model, limit, {}),
        "proxy, escalation off": Server(args.base_url, args.model, limit, ESCALATION_OFF),
        "proxy": Server(args.base_url, args.model, limit, {}),
    }
    print(f"$ python -m benchmarks.measure.loops_cut {' '.join(sys.argv[1:])}")
    where = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    print(f"{datetime.date.today()}, {where}, max_tokens {limit}\n")
    kinds = {
        f"{args.n} requests answered without end": (one_reply, endless),
        f"{args.n} agents whose model repeats its call": (agent, repeating),
    }
    for title, (work, texts) in kinds.items():
        rows = {
            name: measured(server, work, texts(args.seed, args.n), is_proxy=name != "directly")
            for name, server in servers.items()
        }
        print(report(title, rows), end="\n\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
