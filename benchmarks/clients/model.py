"""The scripted model: it does a task in good turns, and spoils one ask in four.

It plays what is not done yet: a file that isn't as it should be, a result that hasn't come. So a
client that was given a spoiled turn gets the same turn once more if it asks again, as from any
model that sees what came of its call. Tokens are counted as they are written, four characters each.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.came import together
from benchmarks.clients import spoiled
from benchmarks.clients.scripted import Json, Say, Turn, Use, good_reply
from benchmarks.clients.spoiled import CHARACTERS, KINDS
from benchmarks.clients.tasks import TASKS, Task
from benchmarks.clients.toolboxes import Toolbox
from tests.faults.catalogue import USAGE
from tests.support.replies import completion, data, usage_chunk
from tests.support.scripted_server import Call, Delay, Piece, Reply

_FRAME = b"data: {"


@dataclass(frozen=True)
class Step:
    """`is_done`: of the results that a request has."""

    turn: Turn
    is_done: Callable[[str], bool]


def steps(task: Task, tools: Toolbox, home: Path) -> list[Step]:
    """Six calls, and what is said at the end."""
    program, test = home / task.file, home / task.test_file
    return [
        Step(
            tools.write(program, task.faulty),
            lambda _: _text(program) in (task.faulty, task.program),
        ),
        Step(tools.write(test, task.test), lambda _: _text(test) == task.test),
        Step(tools.run(task.run), lambda results: task.fails in results),
        Step(tools.show(program), lambda results: f"def {task.name}(" in results),
        Step(tools.mend(program, task.wrong, task.right), lambda _: _text(program) == task.program),
        Step(tools.run(task.run), lambda results: task.passes in results),
        Step(Say(f"{task.file} is right now: its test passes."), lambda _: False),
    ]


CALLS = 6


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8") if file.is_file() else ""


@dataclass
class Tally:
    """What was asked of the model. `spoiled`: the kinds; `last`: of its last reply, or empty."""

    calls: int = 0
    prompt_tokens: int = 0
    characters: int = 0
    spoiled: Counter[str] = field(default_factory=Counter)
    last: str = ""


class Model:
    """One task. `number`: of it; `is_task`: of a request; whatever else is asked gets a title."""

    def __init__(
        self, seed: int, number: int, tools: Toolbox, home: Path, is_task: Callable[[Json], bool]
    ) -> None:
        self.tally = Tally()
        self._seed = seed
        self._number = number
        self._steps = steps(TASKS[number], tools, home)
        self._is_task = is_task
        self._dealt = spoiled.dealt(seed, len(TASKS), CALLS)
        self._asked: Counter[int] = Counter()

    def reply(self, call: Call) -> Reply:
        body = call.json()
        if not self._is_task(body):
            return self._counted(good_reply(Say("A title")), body)
        results = _results(body)
        at = next(at for at, step in enumerate(self._steps) if not step.is_done(results))
        kind = self._kind(at, self._asked[at])
        self._asked[at] += 1
        self.tally.last = kind
        turn = self._steps[at].turn
        if not kind:
            return self._counted(good_reply(turn), body)
        self.tally.spoiled[kind] += 1
        written = turn.written if isinstance(turn, Use) else ""
        return self._counted(KINDS[kind](turn, written), body)

    def _kind(self, turn: int, attempt: int) -> str:
        if attempt == 0:
            return self._dealt.get((self._number, turn), "")
        return spoiled.again(self._seed, self._number, turn, attempt, CALLS)

    def _counted(self, reply: Reply, body: Json) -> Reply:
        """The same with true usage, in one piece where it is not to be streamed."""
        tokens = len(json.dumps(body)) // CHARACTERS
        self.tally.calls += 1
        self.tally.prompt_tokens += tokens
        if not body.get("stream"):
            return self._unstreamed(reply, tokens)
        pieces: list[Piece] = []
        written = 0
        for piece in reply.pieces:
            if isinstance(piece, bytes) and piece.startswith(_FRAME):
                frame = _frame(piece)
                size = _characters(frame)
                written += size
                pieces.append(self._adding(size))
                if "usage" in frame:
                    piece = data(usage_chunk(_usage(tokens, written)))
            pieces.append(piece)
        return Reply.sse(*pieces)

    def _adding(self, characters: int) -> Callable[[], Awaitable[None]]:
        async def add() -> None:
            self.tally.characters += characters

        return add

    def _unstreamed(self, reply: Reply, tokens: int) -> Reply:
        frames = [
            _frame(one) for one in reply.pieces if isinstance(one, bytes) and one.startswith(_FRAME)
        ]
        written = sum(map(_characters, frames))
        body = {**whole_of(frames), "usage": _usage(tokens, written)}
        seconds = sum(one.seconds for one in reply.pieces if isinstance(one, Delay))
        made = Reply.json(body)
        return Reply(
            made.status, made.headers, (Delay(seconds), self._adding(written), *made.pieces)
        )


def _results(body: Json) -> str:
    """The tool results of a request, one after another."""
    texts = []
    for message in body.get("messages", ()):
        if message.get("role") == "tool":
            content = message.get("content") or ""
            parts = [{"text": content}] if isinstance(content, str) else content
            texts += [part.get("text", "") for part in parts]
    return "\n".join(texts)


def _frame(piece: bytes) -> Json:
    frame: Json = json.loads(piece.removeprefix(b"data: "))
    return frame


def _usage(prompt: int, characters: int) -> Json:
    written = max(1, characters // CHARACTERS)
    counts = {"prompt_tokens": prompt, "completion_tokens": written}
    return {**USAGE, **counts, "total_tokens": prompt + written}


def _characters(frame: Json) -> int:
    return sum(len(text) for text in _texts(frame))


def _texts(frame: Json) -> list[str]:
    found = []
    for choice in frame["choices"]:
        delta = choice["delta"]
        found += [delta.get("content") or "", delta.get("reasoning") or ""]
        for call in delta.get("tool_calls") or ():
            function = call["function"]
            found += [function.get("name") or "", function.get("arguments") or ""]
    return found


def whole_of(frames: list[Json]) -> Json:
    """The completion that says what these chunks of a stream say."""
    came = together(frames)
    message = {name: value for name, value in came.message.items() if value}
    return completion({"content": None, **message}, came.finish or "stop")
