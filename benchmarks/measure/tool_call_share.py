"""Which share of a weak model's tool calls reaches a client valid, without the proxy and with it.

    python -m benchmarks.measure.tool_call_share --base-url http://127.0.0.1:4100 \
        --direct-url http://127.0.0.1:8081 --direct-model default_model

Starts nothing: `--base-url` is the proxy of `make run`, `--direct-url` what stands behind it:
LiteLLM (its key in LITELLM_MASTER_KEY), or the tier's own model server. Both are asked the same
single-call questions of deploy/local/demo_tiers.
"""

from __future__ import annotations

import argparse
import datetime
import http.client
import json
import os
import platform
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "deploy" / "local"))

from demo_tiers import questions, scoring, tools

REFUSED = "refused"
VALID = ("exact", "wrong_tool", "wrong_value")
PLAIN = ("text_instead_of_call",)
CUT = ("cut_by_limit", "endless_thinking")  # by the client's own limit, and `length` says so
TIMEOUT_SECONDS = 600


@dataclass(frozen=True)
class Answer:
    """What came of one question: its kind, and what the proxy says that it did."""

    kind: str
    retries: int = 0
    repairs: tuple[str, ...] = ()
    error: str = ""

    @property
    def valid(self) -> bool:
        """Whether it is one call of an offered tool that fits its schema."""
        return self.kind in VALID

    @property
    def broken(self) -> bool:
        """Whether a client gets what looks like success and is neither a good call nor prose."""
        return self.kind not in (*VALID, *PLAIN, *CUT, REFUSED)


class Server:
    """One OpenAI-compatible server."""

    def __init__(self, url: str, model: str, key: str, params: Mapping[str, Any]) -> None:
        self._url = url.rstrip("/").removesuffix("/v1") + "/v1/chat/completions"
        self._model = model
        self._key = key
        self._params = params

    def ask(self, question: questions.Question) -> Answer:
        messages = [{"role": "user", "content": question.text}]
        body = {"model": self._model, "messages": messages, "tools": tools.TOOLS, **self._params}
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self._key}"}
        request = urllib.request.Request(self._url, json.dumps(body).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as reply:
                return _answer(json.load(reply), reply.headers, question)
        except urllib.error.HTTPError as error:
            return _refusal(error)
        except (OSError, http.client.HTTPException, ValueError):
            return Answer("connection_dropped")


def _answer(body: Any, headers: Mapping[str, str], question: questions.Question) -> Answer:
    kind = scoring.classify(body, question.tool, question.arguments)
    repairs = headers.get("X-MLX-Stack-Repairs", "")
    return Answer(
        kind,
        int(headers.get("X-MLX-Stack-Retries", "0")),
        tuple(repairs.split(",")) if repairs else (),
    )


def _refusal(error: urllib.error.HTTPError) -> Answer:
    retries = int(error.headers.get("X-MLX-Stack-Retries", "0"))
    said = error.read().decode(errors="replace")
    try:
        about = json.loads(said)["error"]
        said = f"{about['type']}: {about['message']}"
    except (ValueError, KeyError, TypeError):
        pass
    kind = REFUSED if error.code == 422 else "server_error"
    return Answer(kind, retries, error=f"{error.code} {said[:200]}")


def report(before: Sequence[Answer], after: Sequence[Answer]) -> str:
    """The figures as text: the whole, what the proxy did, and each kind of first reply."""
    lines = [f"{'':34}{'direct':>8}{'proxy':>8}"]

    def line(name: str, test: Any) -> None:
        counts = [sum(map(test, answers)) for answers in (before, after)]
        shares = "".join(f"{count / len(before):8.1%}" for count in counts)
        lines.append(f"{name:34}{shares}")

    line("valid call", lambda one: one.valid)
    line("  of these exactly right", lambda one: one.kind == "exact")
    line("plain text, no call", lambda one: one.kind in PLAIN)
    line("cut by max_tokens, and says so", lambda one: one.kind in CUT)
    line("refused with an error", lambda one: one.kind == REFUSED)
    line("broken, reaches the client", lambda one: one.broken)
    lines += ["", *_means(after), "", *_by_kind(before, after)]
    return "\n".join(lines)


def _means(after: Sequence[Answer]) -> list[str]:
    repairs = Counter(kind for one in after for kind in one.repairs)
    retries = Counter(one.retries for one in after if one.retries)
    said = ", ".join(f"{count} × {kind}" for kind, count in repairs.most_common())
    spread = ", ".join(f"{count} with {number}" for number, count in sorted(retries.items()))
    return [
        f"repairs: {said or 'none'}",
        f"retries: {sum(one.retries for one in after)} in all ({spread or 'none'})",
    ]


def _by_kind(before: Sequence[Answer], after: Sequence[Answer]) -> list[str]:
    lines = [f"{'direct reply':24}{'cases':>7}{'valid':>7}{'exact':>7}  otherwise, by the proxy"]
    for kind, count in Counter(one.kind for one in before).most_common():
        now = [new for old, new in zip(before, after, strict=True) if old.kind == kind]
        valid = sum(one.valid for one in now)
        exact = sum(one.kind == "exact" for one in now)
        others = Counter(one.kind for one in now if not one.valid)
        said = ", ".join(f"{number} {name}" for name, number in others.most_common())
        lines.append(f"{kind:24}{count:7}{valid:7}{exact:7}  {said}")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--base-url", required=True, help="the proxy")
    parser.add_argument("--direct-url", required=True, help="LiteLLM, or the tier's model server")
    parser.add_argument("--model", default="fast")
    parser.add_argument("--direct-model", help="its name there (default: as --model)")
    parser.add_argument("-n", type=int, default=200, help="questions (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--split", default="unseen", choices=["seen", "unseen", "rephrased"])
    parser.add_argument("--tool-choice", choices=["auto", "required"])
    parser.add_argument("--max-tokens", type=int, default=400)
    parser.add_argument("--parallel", type=int, default=2)
    parser.add_argument("--misses", action="store_true", help="each question that stays without")
    args = parser.parse_args()
    params: dict[str, Any] = {"max_tokens": args.max_tokens}
    if args.tool_choice:
        params["tool_choice"] = args.tool_choice
    key = os.environ.get("LITELLM_MASTER_KEY", "local")
    direct = Server(args.direct_url, args.direct_model or args.model, key, params)
    proxy = Server(args.base_url, args.model, key, params)
    asked = list(
        questions.seen(args.n)
        if args.split == "seen"
        else questions.questions(args.seed, args.split, args.n)
    )
    begun = time.monotonic()
    with ThreadPoolExecutor(args.parallel) as pool:
        before = list(pool.map(direct.ask, asked))
        after = list(pool.map(proxy.ask, asked))
    print(f"$ python -m benchmarks.measure.tool_call_share {' '.join(sys.argv[1:])}")
    where = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    seconds = time.monotonic() - begun
    print(f"{datetime.date.today()}, {where}, {args.n} questions, {seconds:.0f} s\n")
    print(report(before, after))
    if args.misses:
        for question, old, new in zip(asked, before, after, strict=True):
            if not new.valid:
                print(f"\n{old.kind} -> {new.kind}: {question.text}\n    {new.error}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
