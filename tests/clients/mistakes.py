"""What a model or its server does wrong before it does right, by name.

Each is played at the agent's first turns, once a turn; then comes what was asked for. `LOOP` is
another thing: the same call, turn after turn, of which no good reply follows.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.clients.scripted import BAD, Say, Turn, Use, call_of, good_reply, results_in
from tests.faults.catalogue import EMPTY, LOST_CALL, READ, whole
from tests.support.replies import data, litellm_error, text_chunks, with_role
from tests.support.scripted_server import RESET, SILENCE, Call, Reply

Json = dict[str, Any]
Mistake = Callable[[Use, str], Reply]  # of a call, and its arguments as they should be
NONE = "none"
LOOP = "the same call for ever"
SENTENCE = "Let me look at the file once more before I go on. "


def _broken_off(use: Use, arguments: str) -> Reply:
    """Killed while it writes the call."""
    function = {"name": use.tool, "arguments": arguments[: len(arguments) // 2]}
    call = {"index": 0, "id": "bad_1", "type": "function", "function": function}
    return Reply.sse(*map(data, with_role({"tool_calls": [call]})[:-1]), READ, RESET)


def _as_text(use: Use, arguments: str) -> Reply:
    written = json.dumps({"name": use.tool, "arguments": json.loads(arguments)})
    return whole(text_chunks("<tool_call>\n", written, "\n</tool_call>"))


MISTAKES: dict[str, Mistake | None] = {
    NONE: None,
    "arguments that are cut": lambda use, given: call_of(use.tool, given[: len(given) // 2], BAD),
    "a comma too many": lambda use, given: call_of(use.tool, given[:-1] + ",}"),
    "missing arguments": lambda use, _: call_of(use.tool, "{}", BAD),
    "an unknown tool": lambda use, given: call_of(f"{use.tool}_please", given, BAD),
    "a call as text": _as_text,
    "no call, though it says so": lambda use, _: LOST_CALL,
    "nothing": lambda use, _: EMPTY,
    "a text that loops": lambda use, _: whole(text_chunks(*[SENTENCE] * 400)),
    "a server's error": lambda use, _: litellm_error(500, "Metal: out of memory"),
    "a killed server": lambda use, _: Reply.raw(RESET),
    "killed in the midst": _broken_off,
    "silence": lambda use, _: Reply.sse(SILENCE),
    LOOP: None,
}
SHORT = ["an unknown tool", "a call as text", "killed in the midst", LOOP]


class Model:
    """Plays the turns of a task, with one mistake at the beginning of each that makes a call.

    `is_task`: of a request; whatever else is asked gets a title. `played`: how often the mistake
    was made; for `LOOP`, how often the call was.
    """

    def __init__(self, turns: Sequence[Turn], name: str, is_task: Callable[[Json], bool]) -> None:
        self._turns = turns
        self._name = name
        self._is_task = is_task
        self._asked: Counter[int] = Counter()
        self.played = 0

    def reply(self, call: Call) -> Reply:
        body = call.json()
        if not self._is_task(body):
            return good_reply(Say("A title"))
        at = min(results_in(body), len(self._turns) - 1)
        if self._name == LOOP:
            at = 1
            self.played += 1
        turn = self._turns[at]
        mistake = MISTAKES[self._name]
        self._asked[at] += 1
        if mistake is None or self._asked[at] > 1 or isinstance(turn, Say):
            return good_reply(turn)
        self.played += 1
        return mistake(turn, turn.written)
