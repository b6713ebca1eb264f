"""The specification's detectors, the run without progress and `on_break: report`, over HTTP."""

from __future__ import annotations

from itertools import count, cycle
from typing import Any

import pytest

from tests.server.asking import ask, checked_error, text_of
from tests.server.climbing import asked
from tests.server.conftest import StartProxy
from tests.server.looping import CHAIN, RULES, Agent, calling
from tests.server.polling import metric
from tests.support.replies import text_stream
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import Call, ScriptedServer, WhenWhole

Json = dict[str, Any]
TWO: Json = {CHAIN: ["fast", "standard"]}
SPECIFICATION: Json = {f"{RULES}.preset": "specification", f"{RULES}.on_break": "error"}
NAMED = {"X-MLX-Stack-Session": "run-7"}
TEXT = (
    "I looked at the build log once more, and the failing step is still the linker, which can't "
    "find the library. This is look number {}; I will check the paths next."
)


async def total(proxy: RunningProxy, name: str, **labels: str) -> float:
    return await metric(proxy, f"mlx_stack_{name}_total", **labels) or 0


def in_turn(*names: str) -> Any:
    """Each call has new arguments."""
    turns, numbers = cycle(names), count()
    return lambda call: calling(next(turns), f"key {next(numbers)}")


@pytest.mark.specification(115, 116, 118)
async def test_search_and_fetch_in_turn_warn_at_call_6_and_break_at_call_8(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    """With the words that #2569 has."""
    upstream.otherwise = in_turn("look", "read")
    said = {"look": "No results found.", "read": "404 Not Found"}
    agent = Agent(await start_proxy(SPECIFICATION), said.__getitem__)
    error = checked_error(await agent.run(8), 422, "loop_detected")
    assert (error["detector"], error["repeats"]) == ("name_cycle", 4)
    assert [agent.header(n) for n in range(1, 7)] == [None] * 6
    assert agent.header(7) == "warning;detector=name_cycle"
    assert agent.header(8) == "circuit_break;detector=name_cycle"


async def lost(proxy: RunningProxy, turns: int) -> Agent:
    """An agent whose calls bring nothing new, in ever new words."""
    said = {"look": "No results found.", "read": "404 Not Found", "note": "ok"}
    agent = Agent(proxy, said.__getitem__)
    await agent.run(turns)
    return agent


async def test_calls_that_bring_nothing_new_are_asked_about_and_broken_at_last(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    numbers = count()

    def answer(call: Call) -> Any:
        if call.json()["model"] == "standard":
            return calling("note", f"key {next(numbers)}")
        return calling(("look", "read")[len(call.json()["messages"]) // 2 % 2], f"{next(numbers)}")

    upstream.otherwise = WhenWhole(answer)
    limits = {f"{RULES}.no_progress.{key}": n for key, n in (("warn", 4), ("ask", 6), ("hard", 12))}
    proxy = await start_proxy({**TWO, **limits, f"{RULES}.on_break": "error"})
    agent = await lost(proxy, 15)
    headers = {n: agent.header(n) for n in range(1, 16) if agent.header(n)}
    # The first two results are new; the next tier's one call brings a third.
    assert headers[7] == headers[9] == "warning;detector=no_progress"
    assert asked(upstream).count("standard") == 1
    assert '"note"' in agent.responses[8].text, "its reply goes out whatever it is"
    assert asked(upstream)[10:] == ["fast"] * 6, "and the session stays where it was"
    assert await total(proxy, "loop_questions", answer="other") == 1


async def test_a_lost_agent_is_broken_at_last(start_proxy: StartProxy) -> None:
    proxy = await start_proxy({f"{RULES}.no_progress.hard": 12, f"{RULES}.on_break": "error"})
    proxy.upstream.otherwise = in_turn("look", "read")
    agent = await lost(proxy, 14)
    error = checked_error(agent.responses[-1], 422, "loop_detected")
    assert (error["detector"], error["repeats"]) == ("no_progress", 12)
    proxy.upstream.will(text_stream("Nothing was found."))
    assert (await agent.turn()).status_code == 200, "an answer ends the task"


@pytest.mark.parametrize(("reply", "answer"), [("look", "same"), ("read", "other"), ("", "empty")])
async def test_what_the_next_tier_answers_is_counted(
    start_proxy: StartProxy, reply: str, answer: str
) -> None:
    proxy = await start_proxy(TWO)
    proxy.upstream.will(calling("look"), calling("look"))
    proxy.upstream.will(calling(reply) if reply else text_stream(""))
    await Agent(proxy).run(2)
    for one in ("same", "other", "empty"):
        assert await total(proxy, "loop_questions", answer=one) == (one == answer)


# Text replies that are nearly the same


@pytest.mark.specification(27, 28, 30, 33, 34)
@pytest.mark.parametrize("streamed", [False, True])
async def test_the_third_reply_that_is_nearly_the_same_breaks(
    upstream: ScriptedServer, start_proxy: StartProxy, streamed: bool
) -> None:
    """With 001's YAML."""
    numbers = count()
    upstream.otherwise = lambda call: text_stream(TEXT.format(next(numbers)))
    given = {"window_size": 10, "similarity_threshold": 0.95, "duplicate_threshold": 3}
    changes = {f"{RULES}.{key}": value for key, value in given.items()}
    proxy = await start_proxy({**changes, f"{RULES}.on_break": "error"})
    for n in range(2):
        question = [{"role": "user", "content": f"Question {n}: what now?"}]
        assert (await ask(proxy, NAMED, messages=question, stream=streamed)).status_code == 200
    response = await ask(proxy, NAMED, stream=streamed)
    error = checked_error(response, 422, "loop_detected")
    assert error["detector"] == "similar_replies"
    assert response.headers["x-mlx-stack-loop"] == "circuit_break;detector=similar_replies"
    assert (await ask(proxy, {"X-MLX-Stack-Session": "another"})).status_code == 200
    await proxy.client.delete("/mlx-stack/sessions/run-7")
    assert (await ask(proxy, NAMED)).status_code == 200, "reset clears it"


async def test_a_session_without_a_name_is_held_against_its_own_transcript(
    start_proxy: StartProxy,
) -> None:
    """The same script may run again, or twice at a time: its replies are no loop."""
    proxy = await start_proxy(
        {f"{RULES}.similar_replies.threshold": 3, f"{RULES}.on_break": "error"}
    )
    for run in range(3):
        messages: list[Json] = [{"role": "user", "content": "Why is the build red?"}]
        for n in range(3):
            text = TEXT.format(f"{n} of run {run}")
            proxy.upstream.will(text_stream(text))
            response = await ask(proxy, messages=messages)
            if n < 2:
                assert response.status_code == 200
                messages += [{"role": "assistant", "content": text}]
                messages += [{"role": "user", "content": f"Go on, please ({n})."}]
        assert checked_error(response, 422, "loop_detected")["detector"] == "similar_replies"


@pytest.mark.specification(28, 31)
@pytest.mark.parametrize(
    ("key", "value", "broken"),
    [
        ("enabled", False, 0),
        ("window_size", 2, 0),
        ("similarity_threshold", 1.0, 0),
        ("duplicate_threshold", 5, 5),
        ("", None, 3),
    ],
)
async def test_each_key_of_001s_yaml_has_its_effect(
    upstream: ScriptedServer, start_proxy: StartProxy, key: str, value: Any, broken: int
) -> None:
    numbers = count()
    upstream.otherwise = lambda call: text_stream(TEXT.format(next(numbers)))
    given: Json = {
        "enabled": True,
        "window_size": 10,
        "similarity_threshold": 0.95,
        "duplicate_threshold": 3,
        "on_break": "error",
    }
    given |= {key: value} if key else {}
    proxy = await start_proxy({f"{RULES}.{name}": one for name, one in given.items()})
    statuses = [(await ask(proxy, NAMED)).status_code for _ in range(6)]
    assert (statuses.index(422) + 1 if 422 in statuses else 0) == broken


# Report


async def test_report_changes_nothing_and_says_what_would_have_been_done(
    start_proxy: StartProxy,
) -> None:
    proxy = await start_proxy({**TWO, f"{RULES}.on_break": "report"})
    proxy.upstream.otherwise = lambda call: calling("look")
    agent = Agent(proxy)
    await agent.run(6)
    assert all(response.status_code == 200 for response in agent.responses)
    assert asked(proxy.upstream) == ["fast"] * 6
    assert all(call.json()["messages"][-1]["role"] != "user" for call in proxy.upstream.calls[1:])
    assert agent.header(2) == "warning;detector=repetition"
    assert agent.header(4) == "circuit_break;detector=repetition"
    events = (await proxy.client.get("/mlx-stack/events")).json()["events"]
    loops = [event for event in events if event["kind"].startswith("loop_")]
    assert {event["detail"]["action"] for event in loops} == {
        "second_opinion",
        "warning",
        "circuit_break",
    }
    assert all(event["detail"]["reported"] for event in loops)
    breaks = [event["detail"].get("again") for event in loops if event["kind"] == "loop_break"]
    assert breaks == [None, True, True]  # a run counts once
    assert await total(proxy, "loops", action="circuit_break", detector="repetition") == 1


async def test_report_lets_a_reply_go_round(start_proxy: StartProxy) -> None:
    whole = "I will look at the file again. " * 60
    proxy = await start_proxy({f"{RULES}.on_break": "report"})
    proxy.upstream.otherwise = lambda call: text_stream(
        *[whole[at : at + 31] for at in range(0, 1860, 31)]
    )
    response = await ask(proxy, stream=True)
    assert text_of(response.content) == whole
    assert await total(proxy, "loops", action="circuit_break", detector="generation") == 1
    assert await total(proxy, "tokens_saved") == 0


async def test_a_batch_of_a_hundred_is_finished(start_proxy: StartProxy) -> None:
    """deer-flow#2511, gemini-cli#5873: renames that each return nothing, with the defaults."""
    proxy = await start_proxy(TWO)
    proxy.upstream.otherwise = in_turn("note")
    agent = Agent(proxy, lambda name: "")
    await agent.run(100)
    assert {response.status_code for response in agent.responses} == {200}
    proxy.upstream.will(text_stream("All 100 are renamed."))
    agent.follow_up(agent.responses[-1])
    assert "All 100" in (await agent.turn()).text
    headers = [agent.header(n) for n in range(1, 102)]
    assert headers.count("warning;detector=no_progress") == len([h for h in headers if h]) == 3
    assert asked(proxy.upstream).count("standard") == 2, "asked about after 30 calls, and after 80"
    assert await total(proxy, "loop_questions", answer="other") == 2
