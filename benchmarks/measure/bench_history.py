"""What loop detection across turns costs: a 400-message request of which 398 were seen.

    python -m benchmarks.measure.bench_history

Prints the CPU time (least and median of the rounds) of the whole stage's work on such a request
(read the history, whether to hold, look for a hint, judge the reply), that of reading alone, and
the memory that a session takes. The garbage collector is set as the server sets it.
"""

from __future__ import annotations

import gc
import json
import statistics
import sys
import time
import tracemalloc
from typing import Any

from mlx_stack_proxy.engine.exchange import Exchange
from mlx_stack_proxy.engine.request import Request, Route, UpstreamRequest
from mlx_stack_proxy.engine.session_id import SessionId
from mlx_stack_proxy.loop_detection.history import HistoryReader
from mlx_stack_proxy.loop_detection.stage import LoopDetection
from mlx_stack_proxy.server.process import GC_YOUNG_OBJECTS
from mlx_stack_proxy.settings import DEFAULT_TIERS, Settings
from mlx_stack_proxy.wire.blocks import Blocks
from mlx_stack_proxy.wire.call import Call
from mlx_stack_proxy.wire.reply import Reply

Json = dict[str, Any]
MESSAGES = 400
RESULT = 1500  # characters of a tool's answer
ROUNDS = 200
GOAL_MS = 1.0
SESSION = SessionId("x-mlx-stack-session", "0" * 32, "0" * 32)


def transcript(count: int, result: int = RESULT) -> list[Json]:
    """A run that reads other files and finds other things; the last message is a result."""
    messages: list[Json] = [{"role": "user", "content": "Find the bug. " * 20}]
    for at in range((count - 1) // 2 + 1):
        arguments = json.dumps(
            {"path": f"src/module_{at}.py", "start_line": at, "end_line": at + 99}
        )
        function = {"name": ("read_file", "grep", "ls")[at % 3], "arguments": arguments}
        call = {"id": f"call_{at}", "type": "function", "function": function}
        said = f"Let me look at module {at} now."
        messages.append({"role": "assistant", "content": said, "tool_calls": [call]})
        content = f"{at} some code and words. " * (result // 24)
        messages.append({"role": "tool", "tool_call_id": f"call_{at}", "content": content})
    return messages[-count:] if count % 2 == 0 else messages[:count]


def exchange(messages: list[Json]) -> Exchange:
    request = Request({"messages": messages}, "m", stream=True, include_usage=True)
    return Exchange(request.asked_by(id="r", session=SESSION, route=Route(("fast",))))


def fresh(messages: list[Json]) -> list[Json]:
    """As a request brings them: other objects each time, so that no hash is there yet."""
    copy: list[Json] = json.loads(json.dumps(messages))
    return copy


def stage_ms(messages: list[Json]) -> tuple[float, float]:
    """Least and median of the stage's work on ``messages``, whose last two it has not seen."""
    settings = Settings(tiers=DEFAULT_TIERS)
    reply = Reply()
    call = Call("read_file", '{"path": "src/new.py"}', "c")
    reply.choice(0).tool_calls.append(call)
    taken = []
    for _ in range(ROUNDS):
        stage = LoopDetection(settings)
        stage.read_history(exchange(fresh(messages[:-2])))
        whole = exchange(fresh(messages))
        request = UpstreamRequest("fast", dict(whole.request.body))
        start = time.thread_time()
        state = stage.open(whole)
        state.hold_whole()
        state.on_request(request)
        state.judge(reply)
        taken.append(time.thread_time() - start)
        del state  # or the next one's time is that of taking this request's body down, too
    return least_and_median(taken)


def least_and_median(seconds: list[float]) -> tuple[float, float]:
    """In milliseconds."""
    return 1000 * min(seconds), 1000 * statistics.median(seconds)


def read_ms(messages: list[Json], seen: list[Json]) -> tuple[float, float]:
    """Reading ``messages`` alone, where ``seen`` was read before."""
    taken = []
    for _ in range(ROUNDS):
        reader = HistoryReader()
        reader.read("s", Blocks(fresh(seen)))
        again = fresh(messages)
        start = time.thread_time()
        reader.read("s", Blocks(again))
        taken.append(time.thread_time() - start)
    return least_and_median(taken)


def session_bytes(messages: list[Json]) -> int:
    """What is kept of a session that came to these messages turn by turn."""
    reader = HistoryReader()
    gc.collect()
    tracemalloc.start()
    for count in range(2, len(messages) + 1, 2):
        reader.read("s", Blocks(messages[:count]))
    gc.collect()
    kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return kept


def main() -> int:
    messages = transcript(MESSAGES)
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_YOUNG_OBJECTS)
    whole = stage_ms(messages)
    print(f"{MESSAGES} messages, {sum(len(m['content']) for m in messages):,} characters")
    print(f"CPU time in ms{'least':>38}{'median':>9}")
    rows = {
        f"the whole stage, {MESSAGES - 2} of them seen before": whole,
        f"reading the history, {MESSAGES - 2} seen": read_ms(messages, messages[:-2]),
        "reading the history, none seen": read_ms(messages, []),
    }
    for name, (least, median) in rows.items():
        print(f"  {name:44}{least:6.2f}{median:9.2f}")
    print(f"memory of the session: {session_bytes(messages) / 1024:.0f} KiB")
    return 0 if whole[0] <= GOAL_MS else 1


if __name__ == "__main__":
    sys.exit(main())
