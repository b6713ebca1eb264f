"""Measures a tier through any OpenAI-compatible server; needs only the standard library.

    python deploy/local/evaluate.py --base-url http://127.0.0.1:8080/v1 -n 200
    python deploy/local/evaluate.py --base-url http://127.0.0.1:8080/v1 -n 60 --what tasks
    python deploy/local/evaluate.py --base-url http://127.0.0.1:8080/v1 -n 60 --what turns

Questions: one call each, exactly right or not (name and every argument), and how the rest went
wrong. Corrections: what failed visibly is asked again, with the error said. Tasks: an agent's loop
over 1 to 6 calls, right when the world ends as it should and the answer states the result. Turns:
every turn of the tasks after a right course so far, and after a call that was made twice, with a
hint: which are visible failures, made again, right, wrong.
"""

import argparse
import http.client
import json
import time
import urllib.error
import urllib.request
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from demo_tiers import questions, scoring, tools

CORRECTION = """Your previous response contained an invalid tool call. The error was:
{error}.
You must respond with valid JSON matching the tool schema exactly.
Available tools: {names}."""
HINT = """You have called {tool} with the same arguments 2 times and got the same result. Do not \
call it again: use the result you have, call something else, or answer with what you know."""
ERRORS = {
    "missing_argument": 'missing required field in function "{tool}"',
    "wrong_type": 'a field in function "{tool}" has the wrong type',
    "not_in_enum": 'a value in function "{tool}" is not one of the allowed values',
    "extra_argument": 'unexpected field in function "{tool}"',
    "unknown_tool": "unknown function",
    "call_as_text": "the tool call was written as text",
    "empty": "the response was empty",
}


class Server:
    def __init__(self, base_url: str, model: str, key: str, **params: Any) -> None:
        self.url = base_url.rstrip("/") + "/chat/completions"
        self.model = model
        self.key = key
        self.params = params

    def ask(self, messages: list[dict[str, Any]]) -> dict[str, Any]:
        body = {"model": self.model, "messages": messages, "tools": tools.TOOLS, **self.params}
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self.key}"}
        request = urllib.request.Request(self.url, json.dumps(body).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=300) as reply:
                return json.load(reply)  # type: ignore[no-any-return]
        except urllib.error.HTTPError as error:
            return {"error": f"{error.code} {error.read()[:200]!r}"}
        except (OSError, http.client.HTTPException, ValueError):
            return {"choices": [{"message": {}, "finish_reason": "connection_dropped"}]}


def kind_of(body: dict[str, Any], question: questions.Question) -> str:
    if body.get("choices", [{}])[0].get("finish_reason") == "connection_dropped":
        return "connection_dropped"
    return scoring.classify(body, question.tool, question.arguments)


def ask_question(server: Server, question: questions.Question) -> tuple[str, str | None]:
    """The kind of the reply; if it failed visibly, also of the one after a correction."""
    messages = [{"role": "user", "content": question.text}]
    kind = kind_of(server.ask(messages), question)
    if kind not in scoring.VISIBLE:
        return kind, None
    error = ERRORS.get(kind, "invalid JSON").format(tool=question.tool)
    said = CORRECTION.format(error=error, names=", ".join(tools.NAMES))
    return kind, kind_of(server.ask([*messages, {"role": "user", "content": said}]), question)


def run_questions(server: Server, split: str, count: int, seed: int, parallel: int) -> None:
    asked = list(
        questions.seen(count) if split == "seen" else questions.questions(seed, split, count)
    )
    with ThreadPoolExecutor(parallel) as pool:
        kinds = list(pool.map(lambda question: ask_question(server, question), asked))
    table = Counter(kind for kind, _ in kinds)
    visible = sum(table[kind] for kind in scoring.VISIBLE)
    right, valid = table["exact"], count - visible
    print(f"\n{split}: {right}/{count} exactly right ({right / count:.1%}), "
          f"{visible} failed visibly ({visible / count:.1%}); "
          f"{right}/{valid} of the others right ({right / max(valid, 1):.1%})")  # fmt: skip
    for kind, number in table.most_common():
        print(f"  {kind:24}{number:5}{number / count:8.1%}")
    again = Counter(kind for _, kind in kinds if kind)
    if visible:
        print(f"  after a correction: {again['exact']}/{visible} exactly right "
              f"({again['exact'] / visible:.1%})")  # fmt: skip


def run_task(server: Server, task: questions.Task) -> str:
    """right, or why not: broken, repeated, wrong."""
    world = questions.world(task)
    messages: list[dict[str, Any]] = [{"role": "user", "content": task.text}]
    for _ in range(len(task.calls) + 3):
        body = server.ask(messages)
        message = body.get("choices", [{"message": {}}])[0]["message"]
        calls = message.get("tool_calls") or []
        if not calls:
            text = message.get("content") or ""
            done = world.notes == task.notes and world.statuses == task.statuses
            if done and all(fact in text for fact in task.facts):
                return "right"
            return "wrong" if text and not scoring.AS_TEXT.search(text) else "broken"
        said = {"role": "assistant", "content": message.get("content"), "tool_calls": calls}
        messages.append(said)
        for call in calls:
            name, arguments = call["function"]["name"], call["function"]["arguments"]
            if scoring.check(name, arguments):
                return "broken"
            result = world.call_json(name, arguments)
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
    return "repeated"


def kind_of_turn(body: dict[str, Any], task: questions.Task, place: int) -> str:
    """The kind of a reply to a task of which ``place`` calls were made; repeated_call: the last of
    them, once more."""
    choice = body.get("choices", [{"message": {}}])[0]
    if place < len(task.calls):
        kind = kind_of(body, questions.Question(task.text, *task.calls[place]))
    elif not choice["message"].get("tool_calls"):
        text = choice["message"].get("content") or ""
        kind = scoring.classify(body, "", {})
        if kind == "text_instead_of_call":
            kind = "exact" if all(fact in text for fact in task.facts) else "wrong_value"
    else:
        kind = kind_of(body, questions.Question(task.text, "", {}))
    if kind in scoring.SILENT and place:
        before = kind_of(body, questions.Question(task.text, *task.calls[place - 1]))
        return "made_again" if before == "exact" else kind
    return kind


def run_turns(server: Server, split: str, count: int, seed: int, parallel: int) -> None:
    plain, told = [], []
    for task in questions.tasks(seed, split, count):
        messages: list[dict[str, Any]] = [{"role": "user", "content": task.text}]
        plain.append((list(messages), task, 0))
        for place, (call, result) in enumerate(zip(task.calls, task.results, strict=True), 1):
            lap = _lap(f"call_{place}", *call, result)
            hint = HINT.format(tool=call[0])
            again = [*messages, *lap, *_lap(f"call_{place}b", *call, result)]
            told.append(([*again, {"role": "user", "content": hint}], task, place))
            messages += lap
            plain.append((list(messages), task, place))
    for name, turns in (("turns", plain), ("told that a call was made twice", told)):
        with ThreadPoolExecutor(parallel) as pool:
            kinds = Counter(
                pool.map(lambda turn: kind_of_turn(server.ask(turn[0]), *turn[1:]), turns)
            )
        visible = sum(kinds[kind] for kind in scoring.VISIBLE)
        again, right = kinds["made_again"], kinds["exact"]
        rest = len(turns) - visible - again
        print(f"\n{name}, {split}: of {len(turns)}, {visible} failed visibly "
              f"({visible / len(turns):.1%}), {again} made a call again; "
              f"of the others {right}/{rest} right ({right / max(rest, 1):.1%})")  # fmt: skip


def _lap(
    called: str, name: str, arguments: dict[str, Any], result: dict[str, Any]
) -> list[dict[str, Any]]:
    function = {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}
    call = {"id": called, "type": "function", "function": function}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": called, "content": json.dumps(result)},
    ]


def run_tasks(server: Server, split: str, count: int, seed: int, parallel: int) -> None:
    asked = list(questions.tasks(seed, split, count))
    with ThreadPoolExecutor(parallel) as pool:
        ends = list(pool.map(lambda task: run_task(server, task), asked))
    right = ends.count("right")
    print(f"\ntasks, {split}: {right}/{count} right ({right / count:.1%})  {dict(Counter(ends))}")
    for steps in range(1, 7):
        some = [end for end, task in zip(ends, asked, strict=True) if len(task.calls) == steps]
        if some:
            print(f"  {steps} calls: {some.count('right')}/{len(some)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--base-url", required=True)
    parser.add_argument("--model", default="default_model")
    parser.add_argument("--api-key", default="local")
    parser.add_argument("-n", type=int, default=200, help="questions, or tasks, of each split")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--split", choices=["seen", "unseen", "rephrased", "all"], default="all")
    parser.add_argument("--what", choices=["questions", "tasks", "turns"], default="questions")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--max-tokens", type=int, default=400)
    parser.add_argument("--parallel", type=int, default=4)
    args = parser.parse_args()
    server = Server(args.base_url, args.model, args.api_key,
                    temperature=args.temperature, max_tokens=args.max_tokens)  # fmt: skip
    begun = time.time()
    for split in ["seen", "unseen", "rephrased"] if args.split == "all" else [args.split]:
        if args.what == "questions":
            run_questions(server, split, args.n, args.seed, args.parallel)
        elif split != "seen":
            run = run_tasks if args.what == "tasks" else run_turns
            run(server, split, args.n, args.seed, args.parallel)
    print(f"\n{time.time() - begun:.0f} s; seed {args.seed}, temperature {args.temperature}")


if __name__ == "__main__":
    main()
