"""The command ``demo``: show what the weak model wrote and what the proxy delivered, side by side.

Each question is asked twice: of the proxy, for the weak tier, and directly, of that tier's model
server; :func:`judged` says whether an agent could use the reply. The model server is the one in the
configuration of a running ``up``, or the server that ``--direct`` names, with the key in
``LITELLM_MASTER_KEY``.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ...frozen import frozen
from ...printable import abridged, printable
from ...settings_source import load
from ...tool_validation.check import Options, check_call
from ...tool_validation.tools import tool_set
from .. import CommandError
from ..local_stack.configs import KEY_VARIABLE, SERVED_MODEL
from ..local_stack.run_directory import PROXY_CONFIG, running_at, take_key
from ..remote import report
from ..remote.client import MAX_ANSWER, PLAIN, NoAnswer, add_url, read, remote_of

AGENT = "demo"  # the agent's name, by which the proxy counts and reports
WEAKEST = "fast"  # the weakest of the demo tiers
_PIPED, _PIPED_BRIEF = 80, 124  # columns, where the output is not a terminal
_MOST = 110  # how many characters of a reply are shown
MAX_TOKENS = 400  # ends a reply that would repeat itself forever
SECONDS = 120.0  # limit for a reply
_AS_IT_CAME = Options(repair=False)


@frozen
class DemoServer:
    """A server to ask: the proxy, or the model server behind it."""

    url: str  # without /v1
    model: str  # the model's name on that server
    key: str = "local"


@frozen
class DemoReply:
    """A reply, or the error that came in its place."""

    written: str  # its text or its calls, in one line
    wrong: str  # why an agent can't use the reply; "": it can
    seconds: float  # until the reply was complete
    headers: httpx.Headers

    def header(self, name: str) -> str:
        """Return the proxy's response header ``x-mlx-stack-NAME``, or ""."""
        return str(self.headers.get(f"x-mlx-stack-{name}", ""))


def add_demo(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Ask a weak model ten questions, directly and through the proxy, and compare the replies. "
        "With these questions the demo model of `make run` makes each kind of mistake."
    )
    add_url(parser)
    parser.add_argument("--tier", default=WEAKEST, help="the tier to ask (default: %(default)s)")
    parser.add_argument(
        "--direct",
        metavar="URL",
        help="the server behind the proxy: LiteLLM, or the tier's model server "
        "(default: that of a running `mlx-stack-proxy up`)",
    )
    parser.add_argument(
        "--direct-model", metavar="NAME", help="the model's name on that server; default: the tier"
    )
    parser.add_argument(
        "--brief", action="store_true", help="print one line for each question, without the replies"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Ask and show. Raises ``CommandError`` if the proxy or the model server can't be asked."""
    remote, _ = remote_of(args)
    url = remote.url
    take_key(os.environ, url)  # LiteLLM's, because with `up --inside` LiteLLM is asked
    key = os.environ.get(KEY_VARIABLE, "local")
    folder = None if args.direct else running_at(url)
    direct = None if folder is None else model_server(folder / PROXY_CONFIG, args.tier)
    if args.direct:
        base = args.direct.rstrip("/").removesuffix("/v1")
        direct = DemoServer(base, args.direct_model or args.tier, key)
    if direct is None:
        raise CommandError(
            f"no `mlx-stack-proxy up` runs at {url}: name what stands behind the proxy with "
            "--direct http://127.0.0.1:4000 (LiteLLM, its key in LITELLM_MASTER_KEY)"
        )
    piped = _PIPED_BRIEF if args.brief else _PIPED
    console = Console(highlight=False, width=None if sys.stdout.isatty() else piped)
    show = _line if args.brief else _pair
    pairs = []
    for number, question, *replies in _replies(direct, DemoServer(url, args.tier, key)):
        console.print(show(number, question, *replies))
        pairs.append(replies)
    directly, proxied = (sum(not reply.wrong for reply in way) for way in zip(*pairs, strict=True))
    text = Text("Usable replies: ")
    text.append(f"{directly} of {len(pairs)} directly", style="yellow").append(", ")
    text.append(f"{proxied} of {len(pairs)} through the proxy", style="bold green").append(".")
    console.print(text)
    if args.brief:
        return 0
    console.print("What the proxy counted, as `mlx-stack-proxy report` shows it:")
    try:
        answer = remote.ask("report", since="0s", agent=AGENT)
        lines = list(report.screen(answer))
    except NoAnswer as error:
        lines = [f"There is no report: {error}"]
    for line in lines:
        console.print(printable(line), markup=False)
    return 0


def model_server(config: Path, tier: str) -> DemoServer | None:
    """Return the tier's model server from the configuration that ``up`` wrote, or None."""
    settings = load(str(config)).tiers.get(tier)
    if settings is None or settings.health_url is None:
        return None
    return DemoServer(settings.health_url.removesuffix("/health"), SERVED_MODEL)


def _replies(
    direct: DemoServer, proxy: DemoServer
) -> Iterator[tuple[int, str, DemoReply, DemoReply]]:
    """Ask all questions; yield number, question and the replies, directly and through the proxy."""
    text = files(__package__).joinpath("questions.json").read_text(encoding="utf-8")
    given, run_id = json.loads(text), secrets.token_hex(4)
    client = httpx.Client(trust_env=False, timeout=SECONDS)
    for number, question in enumerate(given["questions"], 1):
        # A session for each: after an escalation a session stays on the higher tier for a while.
        identity = {"X-MLX-Stack-Agent": AGENT, "X-MLX-Stack-Session": f"demo-{run_id}-{number}"}
        asked = partial(_ask, client, question=question, tools=given["tools"], identity=identity)
        yield number, question, asked(direct), asked(proxy)


def _ask(
    client: httpx.Client,
    server: DemoServer,
    question: str,
    tools: Sequence[Mapping[str, Any]],
    identity: Mapping[str, str],
) -> DemoReply:
    """Ask once. ``identity``: headers that name agent and session. Raises ``CommandError``."""
    body = {
        "model": server.model,
        "messages": [{"role": "user", "content": question}],
        "tools": tools,
        "max_tokens": MAX_TOKENS,
    }
    headers = {"Authorization": f"Bearer {server.key}", **identity, **PLAIN}
    url = f"{server.url}/v1/chat/completions"
    began = time.monotonic()
    try:
        with client.stream("POST", url, json=body, headers=headers) as answer:
            content = read(answer, MAX_ANSWER)
        if answer.is_error:
            written, wrong = content[:2000].decode(errors="replace"), f"status {answer.status_code}"
        else:
            written, wrong = judged(json.loads(content), tools)
    except httpx.ConnectError as error:
        message = f"nothing answers at {server.url}: {error}; start the stack with `make run`"
        raise CommandError(message) from None
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, LookupError, TypeError) as error:
        written, wrong, answer = "", f"the connection broke: {error}", httpx.Response(502)
    return DemoReply(written, wrong, time.monotonic() - began, answer.headers)


def judged(completion: Mapping[str, Any], tools: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """Return a completion's text or calls in one line, and why an agent can't use it ("": it can).

    Each question of the demo needs a call, so that a reply of text alone counts as wrong.
    """
    choice = completion["choices"][0]
    message = choice["message"]
    calls = message.get("tool_calls") or []
    text = str(message.get("content") or message.get("reasoning") or "")
    if choice.get("finish_reason") == "length":
        return text, f"loops until its limit of {MAX_TOKENS} tokens"
    if not calls and not text:
        return "(nothing)", "announces a tool call but has none"
    if not calls:
        return text, "text where a call is needed"
    offered = tool_set(tools)
    made = [(item["function"]["name"], item["function"]["arguments"]) for item in calls]
    checks = [check_call(*call, offered, _AS_IT_CAME) for call in made]
    wrong = next((failure.error for item in checks for failure in item.failures), "")
    return "  ".join(f"{name}({arguments})" for name, arguments in made), wrong


def _pair(number: int, question: str, direct: DemoReply, proxied: DemoReply) -> Table:
    table = Table(
        box=None, padding=(0, 1, 0, 0), pad_edge=False, expand=True, title_justify="left",
        title=Text(f"{number}. {question}", style="bold"),
        header_style="dim",
    )  # fmt: skip
    table.add_column(f"directly, {direct.seconds:.1f} s", ratio=1)
    table.add_column(f"through the proxy, {proxied.seconds:.1f} s", ratio=1)
    table.add_row(
        *(
            Text(printable(abridged(" ".join(reply.written.split()), _MOST)))
            for reply in (direct, proxied)
        )
    )
    table.add_row(_why_wrong(direct), _outcome(proxied))
    table.add_row("")
    return table


def _line(number: int, question: str, direct: DemoReply, proxied: DemoReply) -> Table:
    line = Table.grid(padding=(0, 1, 0, 0), expand=True)
    for ratio in (32, 46, 46):
        line.add_column(ratio=ratio, no_wrap=True, overflow="ellipsis")
    if number == 1:
        line.add_row("", Text("directly", style="dim"), Text("through the proxy", style="dim"))
    line.add_row(f"{number:>2} {question}", _why_wrong(direct), _outcome(proxied))
    return line


def _why_wrong(reply: DemoReply) -> Text:
    if not reply.wrong:
        return Text("✓ right", style="green")
    return Text(f"✗ {printable(abridged(reply.wrong, _MOST))}", style="red")


def _outcome(reply: DemoReply) -> Text:
    """Say what the proxy did, from its response headers, or why its reply can't be used."""
    if reply.wrong:
        return _why_wrong(reply)
    remarks = []
    if (repairs := reply.header("repairs")) == "rescued":
        remarks.append("call found in the text")
    elif repairs:
        remarks.append(f"repaired: {repairs}")
    if weaker_tier := reply.header("escalated-from"):
        reason = reply.header("escalation-reason").replace("_", " ")
        remarks.append(f"{reply.header('tier')} took over from {weaker_tier}: {reason}")
    if retries := int(reply.header("retries") or 0):
        remarks.append(f"retried {'once' if retries == 1 else f'{retries} times'}")
    return Text(
        printable(f"✓ {'; '.join(remarks) or 'right at once'}"),
        style="bold green" if remarks else "green",
    )
