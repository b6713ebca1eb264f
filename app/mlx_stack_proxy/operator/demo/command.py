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
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import httpx
from msgspec import Struct
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ...printable import abridged, printable, without_credentials
from ...settings_source import load
from ...tool_validation.check import Options, check_call
from ...tool_validation.tools import tool_set
from .. import WIDTH, CommandError
from ..local_stack.children import SERVED_MODEL
from ..local_stack.run_directory import KEY_VARIABLE, PROXY_CONFIG, running_at, take_key
from ..remote import report
from ..remote.client import PLAIN, Json, NoAnswer, add_url, read, remote_of

AGENT = "demo"  # the agent's name, by which the proxy counts and reports
WEAKEST = "fast"  # the weakest of the demo tiers
_PIPED_BRIEF = 124  # columns, where the output is not a terminal
_MOST = 110  # how many characters of a reply are shown
MAX_TOKENS = 400  # ends a reply that would repeat itself forever
SECONDS = 120.0  # limit for a reply
_NOT_ASKED = (400, 401, 403, 404)  # a wrong key (400: LiteLLM without a database), model or address
_AS_IT_CAME = Options(repair=False)


class DemoServer(Struct, frozen=True):
    """A server to ask: the proxy, or the model server behind it."""

    url: str  # without /v1
    model: str  # the model's name on that server
    key: str = "local"


class DemoReply(Struct, frozen=True):
    """A reply, or the error that came in its place."""

    written: str  # its text or its calls, in one line
    wrong: str  # why an agent can't use the reply; "": it can
    seconds: float  # until the reply was complete
    headers: httpx.Headers


def add_demo(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Ask a weak model ten questions, directly and through the proxy, and compare the replies. "
        "With these questions the demo model of `make run` makes each kind of mistake."
    )
    add_url(parser)
    add = parser.add_argument
    add("--tier", default=WEAKEST, help="the tier to ask (default: %(default)s)")
    text = (
        "the server behind the proxy: LiteLLM, or the tier's model server (default: that of a "
        "running `mlx-stack-proxy up`)"
    )
    add("--direct", metavar="URL", help=text)
    text = "the model's name on that server; default: the tier"
    add("--direct-model", metavar="NAME", help=text)
    text = "print one line for each question, without the replies"
    add("--brief", action="store_true", help=text)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Ask and show. Raises ``CommandError`` if the proxy or the model server can't be asked."""
    remote, _ = remote_of(args)
    take_key(os.environ, remote.url)  # LiteLLM's, because with `up --inside` LiteLLM is asked
    proxy = DemoServer(remote.url, args.tier, os.environ.get(KEY_VARIABLE, "local"))
    direct = _direct(args, proxy)
    piped = _PIPED_BRIEF if args.brief else WIDTH
    console = Console(highlight=False, width=None if sys.stdout.isatty() else piped)
    given = json.loads(files(__package__).joinpath("questions.json").read_text(encoding="utf-8"))
    run_id, usable, asked = secrets.token_hex(4), [0, 0], given["questions"]
    with httpx.Client(trust_env=False, timeout=SECONDS) as client:
        for number, question in enumerate(asked, 1):
            # A session each: after an escalation a session stays on the higher tier for a while.
            session = {"X-MLX-Stack-Agent": AGENT, "X-MLX-Stack-Session": f"demo-{run_id}-{number}"}
            body = {"messages": [{"role": "user", "content": question}], "tools": given["tools"]}
            replies = [_ask(client, server, body, session) for server in (direct, proxy)]
            usable = [n + (not r.wrong) for n, r in zip(usable, replies, strict=True)]
            console.print(_shown(number, question, replies, brief=args.brief))
    text = Text("Usable replies: ")
    text.append(f"{usable[0]} of {len(asked)} directly", style="yellow").append(", ")
    text.append(f"{usable[1]} of {len(asked)} through the proxy", style="bold green").append(".")
    console.print(text)
    if not args.brief:
        console.print("What the proxy counted, as `mlx-stack-proxy report` shows it:")
        try:
            lines = [*report.screen(remote.ask("report", since="0s", agent=AGENT))]
        except NoAnswer as error:
            lines = [without_credentials(f"There is no report: {error}")]
        for line in lines:
            console.print(printable(line), markup=False)
    return 0


def _direct(args: argparse.Namespace, proxy: DemoServer) -> DemoServer:
    """Return what stands behind the proxy. Raises ``CommandError`` if that is unknown."""
    if args.direct:
        base = args.direct.rstrip("/").removesuffix("/v1")
        return DemoServer(base, args.direct_model or args.tier, proxy.key)
    folder = running_at(proxy.url)
    found = None if folder is None else model_server(folder / PROXY_CONFIG, args.tier)
    if found is None:
        raise CommandError(
            f"no `mlx-stack-proxy up` runs at {proxy.url}: name the server behind the proxy with "
            "--direct http://127.0.0.1:4000 (LiteLLM, its key in LITELLM_MASTER_KEY)"
        )
    return found


def model_server(config: Path, tier: str) -> DemoServer | None:
    """Return the tier's model server from the configuration that ``up`` wrote, or None."""
    settings = load(str(config)).tiers.get(tier)
    if settings is None or settings.health_url is None:
        return None
    return DemoServer(settings.health_url.removesuffix("/health"), SERVED_MODEL)


def _ask(
    client: httpx.Client, server: DemoServer, question: Json, session: Mapping[str, str]
) -> DemoReply:
    """Ask once. ``session``: headers that name it and the agent. Raises ``CommandError``."""
    body = {"model": server.model, "max_tokens": MAX_TOKENS, **question}
    headers = {"Authorization": f"Bearer {server.key}", **session, **PLAIN}
    url, began = f"{server.url}/v1/chat/completions", time.monotonic()
    try:
        with client.stream("POST", url, json=body, headers=headers) as answer:
            content = read(answer)
        if answer.is_error:
            written, wrong = content[:2000].decode(errors="replace"), f"status {answer.status_code}"
            if answer.status_code in _NOT_ASKED:
                said = f"{server.url} answers with {wrong}: {abridged(written, _MOST)}"
                right = f"is the key in {KEY_VARIABLE} right, and the model, {server.model}?"
                raise CommandError(f"{said}; {right}")
        else:
            written, wrong = judged(json.loads(content), question["tools"])
    except httpx.ConnectError as error:
        message = f"nothing answers at {server.url}: {error}; start the stack with `make run`"
        raise CommandError(message) from None
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, LookupError, TypeError) as error:
        written, wrong, answer = "", f"no chat completion came: {error}", httpx.Response(502)
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


def _shown(number: int, question: str, replies: Sequence[DemoReply], *, brief: bool) -> Table:
    """Return what both made of a question; ``brief``: on one line, below a head for the first."""
    table = Table.grid(padding=(0, 1, 0, 0), expand=True)
    outcomes = [_outcome(reply) for reply in replies]
    ways = ("directly", "through the proxy")
    if brief:
        for ratio in (32, 46, 46):
            table.add_column(ratio=ratio, no_wrap=True, overflow="ellipsis")
        if number == 1:
            table.add_row("", *(Text(way, style="dim") for way in ways))
        table.add_row(f"{number:>2} {question}", *outcomes)
        return table
    table.title, table.title_justify = Text(f"{number}. {question}", style="bold"), "left"
    for _ in replies:
        table.add_column(ratio=1)
    heads = (f"{way}, {one.seconds:.1f} s" for way, one in zip(ways, replies, strict=True))
    table.add_row(*(Text(head, style="dim") for head in heads))
    written = (" ".join(reply.written.split()) for reply in replies)
    table.add_row(*(Text(printable(abridged(text, _MOST))) for text in written))
    table.add_row(*outcomes)
    table.add_row("")
    return table


def _outcome(reply: DemoReply) -> Text:
    """Say whether a reply can be used, and what the proxy did, from its response headers."""
    if reply.wrong:
        return Text(f"✗ {printable(abridged(reply.wrong, _MOST))}", style="red")
    prefix = "x-mlx-stack-"
    said = {k.removeprefix(prefix): v for k, v in reply.headers.items() if k.startswith(prefix)}
    remarks = []
    if repairs := said.get("repairs"):
        remarks.append("call found in the text" if repairs == "rescued" else f"repaired: {repairs}")
    if weaker := said.get("escalated-from"):
        reason = said.get("escalation-reason", "").replace("_", " ")
        remarks.append(f"{said.get('tier')} took over from {weaker}: {reason}")
    if retries := int(said.get("retries") or 0):
        remarks.append(f"retried {'once' if retries == 1 else f'{retries} times'}")
    if not remarks:
        return Text("✓ right at once" if said else "✓ right", style="green")
    return Text(printable(f"✓ {'; '.join(remarks)}"), style="bold green")
