"""The scripted model: it does a task in good turns, and spoils one ask in four.

It plays what is not done yet: a file that isn't as it should be, a result that hasn't come. So a
client that was given a spoiled turn gets the same turn once more if it asks again, as from any
model that sees what came of its call. Tokens are counted as they are written, four characters each.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

from benchmarks.came import together
from benchmarks.clients import spoiled
from benchmarks.clients.scripted import Say, Turn, Use, good_reply
from benchmarks.clients.spoiled import CHARACTERS, KINDS
from benchmarks.clients.tasks import TASKS, Task
from benchmarks.clients.toolboxes import Toolbox
from benchmarks.records import Json
from tests.faults.catalogue import USAGE
from tests.support.replies import completion, data, usage_chunk
from tests.support.scripted_server import Call, Delay, Piece, Reply

_FRAME = b"data: {"


# A turn, and whether it is done, by the results that a request has
Step = tuple[Turn, Callable[[str], bool]]


def steps(task: Task, tools: Toolbox, home: Path) -> list[Step]:
    """Six calls, and what is said at the end."""
    program, test, known = home / task.file, home / task.test_file, (task.faulty, task.program)
    mending = tools.mend(program, task.wrong, task.right)
    return [
        (tools.write(program, task.faulty), lambda _: _text(program) in known),
        (tools.write(test, task.test), lambda _: _text(test) == task.test),
        (tools.run(task.run), lambda results: task.fails in results),
        (tools.show(program), lambda results: f"def {task.name}(" in results),
        (mending, lambda _: _text(program) == task.program),
        (tools.run(task.run), lambda results: task.passes in results),
        (Say(f"{task.file} is right now: its test passes."), lambda _: False),
    ]


CALLS = 6


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8") if file.is_file() else ""


class Model:
    """One task. `number`: of it; `is_task`: of a request; whatever else is asked gets a title.

    It counts what was asked of it. `spoiled`: the kinds; `last`: of its last reply, or empty.
    """

    def __init__(
        self, seed: int, number: int, tools: Toolbox, home: Path, is_task: Callable[[Json], bool]
    ) -> None:
        self.calls = self.prompt_tokens = self.characters = 0
        self.spoiled: Counter[str] = Counter()
        self.last = ""
        self._seed, self._number = seed, number
        self._steps = steps(TASKS[number], tools, home)
        self._is_task = is_task
        self._dealt = spoiled.dealt(seed, len(TASKS), CALLS)
        self._asked: Counter[int] = Counter()

    def reply(self, call: Call) -> Reply:
        body = call.json()
        if not self._is_task(body):
            return self._counted(good_reply(Say("A title")), body)
        results = _results(body)
        at, turn = next(
            (at, turn) for at, (turn, done) in enumerate(self._steps) if not done(results)
        )
        kind = self.last = self._kind(at, self._asked[at])
        self._asked[at] += 1
        if not kind:
            return self._counted(good_reply(turn), body)
        self.spoiled[kind] += 1
        written = turn.written if isinstance(turn, Use) else ""
        return self._counted(KINDS[kind](turn, written), body)

    def _kind(self, turn: int, attempt: int) -> str:
        if attempt == 0:
            return self._dealt.get((self._number, turn), "")
        return spoiled.again(self._seed, self._number, turn, attempt, CALLS)

    def _counted(self, reply: Reply, body: Json) -> Reply:
        """The same with true usage, in one piece where it is not to be streamed."""
        tokens = len(json.dumps(body)) // CHARACTERS
        self.calls += 1
        self.prompt_tokens += tokens
        pieces: list[Piece] = []
        frames: list[Json] = []
        written = 0
        for piece in reply.pieces:
            if isinstance(piece, bytes) and piece.startswith(_FRAME):
                frame = json.loads(piece.removeprefix(b"data: "))
                size = sum(map(len, _texts(frame)))
                written += size
                frames.append(frame)
                pieces.append(self._adding(size))
                if "usage" in frame:
                    piece = data(usage_chunk(_usage(tokens, written)))
            pieces.append(piece)
        if body.get("stream"):
            return Reply.sse(*pieces)
        made = Reply.json({**whole_of(frames), "usage": _usage(tokens, written)})
        seconds = sum(one.seconds for one in reply.pieces if isinstance(one, Delay))
        return replace(made, pieces=(Delay(seconds), self._adding(written), *made.pieces))

    def _adding(self, characters: int) -> Callable[[], Awaitable[None]]:
        async def add() -> None:
            self.characters += characters

        return add


def _results(body: Json) -> str:
    """The tool results of a request, one after another."""
    texts = []
    for message in body.get("messages", ()):
        if message.get("role") == "tool":
            content = message.get("content") or ""
            parts = [{"text": content}] if isinstance(content, str) else content
            texts += [part.get("text", "") for part in parts]
    return "\n".join(texts)


def _usage(prompt: int, characters: int) -> Json:
    written = max(1, characters // CHARACTERS)
    counts = {"prompt_tokens": prompt, "completion_tokens": written}
    return {**USAGE, **counts, "total_tokens": prompt + written}


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
