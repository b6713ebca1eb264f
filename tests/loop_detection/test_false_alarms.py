"""Agents that get on, however monotonous it looks: every one of these was stopped by some project.

(The projects and their issues stand next to them.)
"""

from __future__ import annotations

import pytest

from benchmarks.measure.score_loops import history_report
from mlx_stack_proxy.loop_detection.stage import LoopDetection
from tests.engine.exchanges import asked_again
from tests.loop_detection.asking import NAMED, asked, judged
from tests.loop_detection.histories import (
    TASK,
    Json,
    answers,
    calls,
    says,
    settings,
    step,
    steps,
    user,
)
from tests.loop_detection.played import Played

Made = list[tuple[str, Json, str]]
WORDS = ["quokka", "wombat", "koala", "numbat", "bilby", "dingo", "emu", "galah", "lory", "ibis"]
PAGES = ["Forbidden City …", "failed: 0, passed: 20", "usage: 34%", "Error handling in Rust"]
RED = "FAILED tests/test_a.py::test_x - assert 3 == 4\n1 failed in 0.12s"


def in_turns(*each: tuple[str, Json, str], times: int = 20) -> Made:
    """Each with the number of the round in its place: `{}`."""
    return [
        (name, {key: str(value).format(n) for key, value in given.items()}, said.format(n))
        for n in range(times)
        for name, given, said in each
    ]


GETTING_ON: dict[str, Made] = {
    "a poll whose answer moves (qwen-code#9450, Roo#9502)": [
        ("job_status", {"id": 7}, f"step {word} is running") for word in WORDS
    ],
    "pages whose words look like errors": [
        made
        for word in WORDS
        for made in (
            ("search", {"query": word}, f"no. of rows: 12, {word}"),
            ("fetch", {"url": f"http://x/{word}"}, f"{PAGES[len(word) % 4]} {word}"),
        )
    ],
    "times that are asked about": [
        ("metrics", {"host": "a", "timestamp": word}, "0 errors") for word in WORDS
    ],
    "a shell alone": in_turns(("bash", {"command": "cat {}.py"}, "code {}"), times=60),
    "waiting with a tool that waits (OpenHands#5355)": in_turns(
        ("tail_log", {"file": "build.log"}, "compiling ..."), ("wait", {"seconds": 30}, "")
    ),
    "pages read one by one (deer-flow#5486)": in_turns(("read", {"page": "{}"}, "text {}")),
    "files moved one by one (deer-flow#2511, gemini-cli#5873)": in_turns(
        ("bash", {"command": "mv {0}.txt {0}.md"}, ""), times=100
    ),
    "files written, whatever the tool answers": in_turns(
        ("write_file", {"path": "{}.md", "content": "# {}"}, "ok"), times=80
    ),
    "a batch in which each is checked": in_turns(
        ("move_file", {"source": "a/{}", "destination": "b/{}"}, "File moved."),
        ("check_exists", {"path": "{}"}, "true"),
    ),
    "edit, test, edit, test (hermes)": in_turns(
        ("edit_file", {"path": "a.py", "new_string": "x{}"}, "ok"),
        ("bash", {"command": "pytest -q"}, RED),
    ),
    "the same with a shell alone": in_turns(
        ("bash", {"command": "sed -i s/x{}/x/ a.py"}, ""), ("bash", {"command": "make test"}, RED)
    ),
    "a list gone through with answers that are alike": in_turns(
        ("get_user", {"of": "{}"}, "active"), ("get_quota", {"of": "{}"}, "ok")
    ),
    "a look at the screen after each act": in_turns(
        ("click", {"x": "{}"}, "ok"), ("screenshot", {}, "[image]")
    ),
    "an answer that moves in between is a reason to call again": in_turns(
        ("next_tweet", {}, "tweet no. {}"), ("label", {"label": "positive"}, "ok"), times=8
    ),
    "two of a kind": [("bash", {"command": "ls"}, "a b")] * 2,
    "long numbers are not rounded": [("get", {"id": 10**24 + n}, "not ready") for n in range(9)],
    "an error that moves (OpenHands)": in_turns(
        ("python", {"code": "print('"}, "Cell In[1], line {}\nSyntaxError"), times=4
    ),
}


# Runs in which 15 calls bring nothing new look like those of an agent that is lost. With how many
# calls at their beginning did bring something.
NOTHING_NEW = {
    "pages read one by one (deer-flow#5486)": 1,
    "files moved one by one (deer-flow#2511, gemini-cli#5873)": 1,
    "files written, whatever the tool answers": 1,
    "a batch in which each is checked": 2,
    "edit, test, edit, test (hermes)": 2,
    "the same with a shell alone": 2,
    "a list gone through with answers that are alike": 2,
    "a look at the screen after each act": 2,
}


@pytest.mark.parametrize("name", GETTING_ON)
def test_it_gets_on(name: str) -> None:
    """Silent, but for one neutral hint where 15 calls bring nothing new, and a question at 30."""
    made = GETTING_ON[name]
    run = Played([TASK, *steps(*made)])
    assert not run.broken
    assert [detector for _, detector in run.hints] == ["no_progress"] * (name in NOTHING_NEW)
    asked = [number for number, detector in run.asked if detector == "no_progress"]
    new = NOTHING_NEW.get(name, len(made))
    assert asked == [new + calls + 1 for calls in (30, 80) if new + calls < len(made)]
    assert all("go on" in words for words in run.words)


CONFIGURED: dict[str, tuple[Json, Made]] = {
    "identical_calls": ({}, GETTING_ON["two of a kind"]),
    "name_cycle": (
        {},
        [(name, {"n": n}, f"text {word}") for n, word in enumerate(WORDS) for name in "ab"][:5],
    ),
    "tool_frequency": ({}, GETTING_ON["pages read one by one (deer-flow#5486)"]),
    "similar_replies": ({}, GETTING_ON["edit, test, edit, test (hermes)"]),
}


@pytest.mark.parametrize("row", CONFIGURED)
def test_it_gets_on_with_the_documents_detectors(row: str) -> None:
    changes, made = CONFIGURED[row]
    run = Played([TASK, *steps(*made)], **{row: changes})
    assert not run.broken
    assert row not in [detector for _, detector in run.hints]


def test_a_poll_in_which_only_a_number_moves_is_asked_about_once_and_never_refused() -> None:
    """Twelve laps are no proof: what comes then goes out, whoever makes it."""
    stage = LoopDetection(settings())
    messages = [TASK]
    broken = []
    for percent in range(40):
        reply = calls(("job_status", {"id": 7}))
        whole = asked(messages)
        verdict = judged(stage, messages, reply, whole)
        if verdict is not None and not verdict.doubt:
            broken.append(verdict.confirmable)
            again = judged(stage, messages, reply, asked_again(asked(messages), verdict))
            assert again is None or again.confirmed or again.doubt
        messages += [reply, *answers(reply, f"running, {percent} %")]
    assert broken and all(broken)
    for on_break in ("error", "stop"):
        assert judged(LoopDetection(settings(on_break=on_break)), messages, reply) is None


def test_a_call_that_is_made_twice_is_asked_about_at_most() -> None:
    """OpenHands' own case of no loop. As the score reads it: a doubt breaks nothing."""
    call = {"tool": {"name": "run", "args": {"command": "ls"}, "result": ""}}
    assert history_report([{"user": "Hello"}, call, call], "history").first is None
    assert history_report([{"user": "Hello"}, *[call] * 5], "history").broken is not None


def test_a_slow_poll_gets_the_count_anew_with_each_answer_that_moves() -> None:
    poll = [("job_status", {"id": 7}, f"step {word}") for word in WORDS for _ in "12"]
    assert not Played([TASK, *steps(*poll)]).broken


def test_pages_of_a_file() -> None:
    """`scroll_down`, `scroll_down`: nobody is asked about a page that may have a next one."""
    page = [("bash", {"command": "scroll_down"}, f"{word} " * 400) for word in WORDS]
    stage = LoopDetection(settings())
    messages = [TASK, *steps(*page[:1])]
    assert judged(stage, messages, calls(page[1][:2])) is None
    assert Played([TASK, *steps(*page)]).is_silent


def test_a_session_with_a_name_that_asks_the_same_single_question_again() -> None:
    """Heartbeats, batches, a test run with a name: the third one was refused."""
    stage = LoopDetection(settings(on_break="error"))
    for number in range(6):
        whole = asked([user("HEARTBEAT: anything to do?")], NAMED, f"r{number}")
        assert judged(stage, [], says("HEARTBEAT_OK"), whole) is None


def test_reading_again_after_compaction() -> None:
    """deer-flow#2116: what was read before the summary is gone; it is read once more."""
    files = [("read_file", {"path": f"{name}.py"}, f"code of {name}") for name in "abc"]
    before = [TASK, *steps(*files * 2)]
    after = [user("Summary of what was done so far: read a, b and c."), *steps(*files)]
    assert not Played(before).broken
    assert Played(after).is_silent


def test_parallel_reads_at_the_start() -> None:
    """qwen-code#3236."""
    many = calls(*(("read_file", {"path": f"src/{n}.ts"}) for n in range(12)))
    results = answers(many, *(f"module {n}" for n in range(12)))
    more = calls(*(("read_file", {"path": f"lib/{n}.ts"}) for n in range(12)))
    assert Played([TASK, many, *results, more, *answers(more, *map(str, range(12)))]).is_silent


THOUGHT = "Thought: the one before is done, so I now go on with the next one of the list that the "


@pytest.mark.parametrize(
    "said",
    [
        "user has given to me.\nAction: delete_file\nAction Input: {}.txt",
        "user has given to me.\n**Action:** search {}",
        "user has given to me.\n<code>\nresult = get_capital(country={})\n</code>",
        "user has given to me.\n```python\nget_capital({})\n```",
        "user has given to me.\n<search>\n<query>{}</query>\n</search>",
        "user has given to me, and that one is “{}”.",
    ],
)
def test_calls_in_an_agent_s_text_that_differ_in_one_word(said: str) -> None:
    messages = [TASK]
    for word in (*WORDS[:4], "page 3", "page 4"):
        messages += [says(THOUGHT + said.format(word)), user("Observation: done")]
    assert Played(messages).is_silent


def test_a_user_who_asks_again_starts_a_new_count() -> None:
    ask: list[Json] = []
    for _ in range(6):
        ask += [user("What's the weather?"), *step("weather", {"city": "Oslo"}, "4 °C, rain")]
        ask += [says(f"Still 4 °C and rain ({len(ask)}).")]
    assert Played(ask).is_silent


@pytest.mark.parametrize("said", ["Run the tests again.", "HEARTBEAT: is there anything to do?"])
def test_a_user_who_asks_for_the_same_each_time_may_get_the_same_again(said: str) -> None:
    """The agent acts on it and comes to an end each time: the user loops, not the agent."""
    ask = [user(said), *step("bash", {"command": "make test"}, "3 passed"), says("All pass.")]
    run = Played(ask * 6)
    assert run.is_silent
    assert not run.held


@pytest.mark.parametrize("answer", ["HEARTBEAT_OK", "```\nnothing to do\n```"])
def test_a_heartbeat_within_one_transcript(answer: str) -> None:
    """The fourth one ended in 422."""
    assert Played([user("HEARTBEAT 12:01"), says(answer)] * 6).is_silent


def test_tools_that_only_say_ok_are_broken_no_earlier() -> None:
    """Each key is answered alike, so the first of the same ones seems to answer to one of them."""
    made = [("press_key", {"key": key}, "ok") for key in ("up", "down", "down", "down", "left")]
    assert not Played([TASK, *steps(*made)]).broken
    made[3:3] = made[1:2]
    assert Played([TASK, *steps(*made)]).broken == [(5, "repetition")]


def test_a_round_that_was_gone_twice_but_found_something_each_time() -> None:
    """OpenHands: A B, C D, C D."""
    made = [("run", {"command": str(n)}, f"text {n}") for n in range(4)]
    assert Played([TASK, *steps(*made), user("Go on."), *steps(*made[2:])]).is_silent


def test_whoever_leaves_a_circle_for_something_known_is_let_go() -> None:
    other = ("read_file", {"path": "a"}, "text of a")
    made = [other, *[("run", {"command": "ls"}, "a b")] * 9, other]
    assert max(number for number, _ in Played([TASK, *steps(*made)]).broken) == 10
