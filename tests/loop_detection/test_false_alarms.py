"""Agents that get on, however monotonous it looks: every one of these was stopped by some project.

(The projects and their issues are in the docstrings.)
"""

from __future__ import annotations

import pytest

from benchmarks.measure import loop_histories
from mlx_stack_proxy.loop_detection.stage import LoopDetection
from tests.engine.exchanges import asked_again
from tests.loop_detection.asking import NAMED, asked, judged
from tests.loop_detection.histories import (
    TASK,
    Json,
    Run,
    answers,
    calls,
    says,
    settings,
    step,
    steps,
    user,
)

WORDS = ["quokka", "wombat", "koala", "numbat", "bilby", "dingo", "emu", "galah", "lory", "ibis"]
PAIRS = list(enumerate(f"{one} and {other}" for one in WORDS for other in WORDS))


def test_a_poll_whose_answer_moves() -> None:
    """qwen-code#9450, Roo#9502."""
    poll = [("job_status", {"id": 7}, f"step {word} is running") for word in WORDS]
    assert Run([TASK, *steps(*poll)]).is_silent


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
    assert loop_histories.run([{"user": "Hello"}, call, call], "history").first is None
    assert loop_histories.run([{"user": "Hello"}, *[call] * 5], "history").broken is not None


def test_a_slow_poll_gets_the_count_anew_with_each_answer_that_moves() -> None:
    poll = [("job_status", {"id": 7}, f"step {word}") for word in WORDS for _ in "12"]
    assert not Run([TASK, *steps(*poll)]).broken


def test_pages_whose_words_look_like_errors() -> None:
    """An agent that gets on was broken for them."""
    pages = ["Forbidden City …", "failed: 0, passed: 20", "usage: 34%", "Error handling in Rust"]
    made = [
        one
        for word in WORDS
        for one in (
            ("search", {"query": word}, f"no. of rows: 12, {word}"),
            ("fetch", {"url": f"http://x/{word}"}, f"{pages[len(word) % 4]} {word}"),
        )
    ]
    assert Run([TASK, *steps(*made)]).is_silent


@pytest.mark.parametrize("name", ["timestamp", "request_id", "description", "thought"])
def test_an_argument_counts_whatever_its_name(name: str) -> None:
    """`metrics(timestamp=…)` was broken as a loop: the times asked about were taken for noise."""
    made = [("metrics", {"host": "a", name: word}, "0 errors") for word in WORDS]
    assert Run([TASK, *steps(*made)]).is_silent


def test_pages_of_a_file() -> None:
    """`scroll_down`, `scroll_down`: nobody is asked about a page that may have a next one."""
    page = [("bash", {"command": "scroll_down"}, f"{word} " * 400) for word in WORDS]
    stage = LoopDetection(settings())
    messages = [TASK, *steps(*page[:1])]
    assert judged(stage, messages, calls(page[1][:2])) is None
    assert Run([TASK, *steps(*page)]).is_silent


def test_a_shell_alone() -> None:
    """It does all with one tool: that is no reason for a hint."""
    made = [("bash", {"command": f"cat {n}.py"}, f"code of {word}") for n, word in PAIRS[:60]]
    assert Run([TASK, *steps(*made)]).is_silent


def test_a_session_with_a_name_that_asks_the_same_single_question_again() -> None:
    """Heartbeats, batches, a test run with a name: the third one was refused."""
    stage = LoopDetection(settings(on_break="error"))
    for number in range(6):
        whole = asked([user("HEARTBEAT: anything to do?")], NAMED, f"r{number}")
        assert judged(stage, [], says("HEARTBEAT_OK"), whole) is None


def test_waiting_for_a_process_with_a_tool_that_waits() -> None:
    """OpenHands#5355."""
    waiting = [("tail_log", {"file": "build.log"}, "compiling ..."), ("wait", {"seconds": 30}, "")]
    assert Run([TASK, *steps(*waiting * 12)]).is_silent
    assert Run([TASK, *steps(*[("sleep", {"seconds": 5}, "ok")] * 40)]).is_silent


def test_pages_read_one_by_one() -> None:
    """deer-flow#5486."""
    pages = [("read_page", {"page": page}, f"text of page {page}") for page in range(25)]
    assert Run([TASK, *steps(*pages)]).is_silent


@pytest.mark.parametrize("answer", ["", "renamed {0}.txt to {0}.md"])
def test_batch_work_with_one_tool(answer: str) -> None:
    """deer-flow#2511, gemini-cli#5873: files moved one by one, a hundred of them."""
    moves = [("bash", {"command": f"mv {n}.txt {n}.md"}, answer.format(n)) for n in range(100)]
    assert Run([TASK, *steps(*moves)]).is_silent


def test_many_files_written_are_work_whatever_the_tool_answers() -> None:
    writes = [("write_file", {"path": f"{n}.md", "content": f"# {n}"}, "ok") for n in range(80)]
    assert Run([TASK, *steps(*writes)]).is_silent


def test_reading_again_after_compaction() -> None:
    """deer-flow#2116: what was read before the summary is gone; it is read once more."""
    files = [("read_file", {"path": f"{name}.py"}, f"code of {name}") for name in "abc"]
    before = [TASK, *steps(*files * 2)]
    after = [user("Summary of what was done so far: read a, b and c."), *steps(*files)]
    assert not Run(before).broken
    assert Run(after).is_silent
    assert Run([user("Summary, later: still about a, b, c."), *steps(*files)]).is_silent


def test_parallel_reads_at_the_start() -> None:
    """qwen-code#3236."""
    many = calls(*(("read_file", {"path": f"src/{n}.ts"}) for n in range(12)))
    results = answers(many, *(f"module {n}" for n in range(12)))
    more = calls(*(("read_file", {"path": f"lib/{n}.ts"}) for n in range(12)))
    assert Run([TASK, many, *results, more, *answers(more, *map(str, range(12)))]).is_silent


@pytest.mark.parametrize("verdict", ["{0} failed", "3 failed"])
def test_edit_test_edit_test(verdict: str) -> None:
    """hermes: the test is run again after each edit, and may well fail the same way."""
    rounds = [
        one
        for n in range(10)
        for one in (
            ("edit_file", {"path": "a.py", "old_string": "x", "new_string": f"x{n}"}, "ok"),
            ("bash", {"command": "pytest -q"}, verdict.format(10 - n)),
        )
    ]
    assert Run([TASK, *steps(*rounds)]).is_silent


RED = "FAILED tests/test_a.py::test_x - assert 3 == 4\n1 failed in 0.12s"


@pytest.mark.parametrize(
    ("edit", "arguments", "answer"),
    [
        ("edit", {"filePath": "a.py", "oldString": "x", "newString": "x{}"}, "Edit applied."),
        ("apply_patch", {"input": "*** Begin Patch\n+{}"}, "Done!"),
        ("edit_file", {"target_file": "a.py", "code_edit": "x = {}"}, "The file was edited."),
        ("edit_existing_file", {"filepath": "a.py", "changes": "x = {}"}, "ok"),
        ("insert_edit_into_file", {"filePath": "a.py", "code": "x = {}"}, "ok"),
        ("search_and_replace", {"path": "a.py", "search": "x", "replace": "x{}"}, "ok"),
        ("bash", {"command": "sed -i s/x{}/x/ a.py"}, ""),
    ],
)
def test_edit_test_with_every_agent_s_tools(edit: str, arguments: Json, answer: str) -> None:
    """opencode, Codex, Cursor, Continue, Copilot, Roo, and a shell alone."""
    made = []
    for n in range(12):
        own = {key: value.format(n) for key, value in arguments.items()}
        made += [(edit, own, answer), ("run_in_terminal", {"command": "pytest -q"}, RED)]
    assert Run([TASK, *steps(*made)]).is_silent


@pytest.mark.parametrize(
    ("tool", "arguments", "answer"),
    [
        ("move_file", {"source": "a/{}.jpg", "destination": "b/{}.jpg"}, "File moved."),
        ("send_email", {"to": "{}@example.org", "subject": "Hi"}, '{"status": "sent"}'),
        ("gmail__mark_as_read", {"message": "{}"}, "ok"),
        ("label", {"id": "{}", "label": "positive"}, "done"),
    ],
)
def test_a_batch_that_is_always_answered_alike(tool: str, arguments: Json, answer: str) -> None:
    """deer-flow#2511, gemini-cli#5873, with a tool that only says that it is done."""
    each = [{key: value.format(n) for key, value in arguments.items()} for n in range(70)]
    assert Run([TASK, *steps(*((tool, own, answer) for own in each))]).is_silent
    checked = [
        one
        for n, own in enumerate(each[:20])
        for one in ((tool, own, answer), ("check_exists", {"path": str(n)}, "true"))
    ]
    assert Run([TASK, *steps(*checked)]).is_silent


@pytest.mark.parametrize(
    "tools",
    [
        {"ping": "alive", "check_port": "open"},
        {"get_user": "active", "get_quota": "ok", "get_flags": "[default]"},
        {"think": "Your thought was noted.", "check_status": "200 OK"},
    ],
    ids=", ".join,
)
def test_a_list_gone_through_with_answers_that_are_alike(tools: dict[str, str]) -> None:
    """Host after host is alive: what is asked is another thing each time, and it is answered."""
    made = [(tool, {"of": n}, said) for n in range(12) for tool, said in tools.items()]
    assert Run([TASK, *steps(*made)]).is_silent


@pytest.mark.parametrize("act", ["click", "browser_click", "scroll", "press_key", "type_text"])
def test_a_look_at_the_screen_after_each_act(act: str) -> None:
    made = []
    for n in range(10):
        made += [(act, {"x": n, "y": 2 * n}, "ok"), ("screenshot", {}, "[image]")]
    assert Run([TASK, *steps(*made)]).is_silent


def test_a_batch_is_told_once_at_most_and_never_broken() -> None:
    """Whether "Nothing to move." is what was wanted, no structure says."""
    for answer in ("File moved.", "Nothing to move.", '{"error": "no such file"}'):
        made = [("move_file", {"n": n}, answer) for n in range(55)]
        assert not Run([TASK, *steps(*made)]).broken


def test_an_answer_that_moves_in_between_is_a_reason_to_call_again() -> None:
    """The same label for one tweet after the other; a list of tasks read between files."""
    made = []
    for word in WORDS:
        made += [("next_tweet", {}, f"tweet of a {word}"), ("label", {"label": "positive"}, "ok")]
    assert Run([TASK, *steps(*made)]).is_silent


THOUGHT = "Thought: the one before is done, so I now go on with the next one of the list that the "


@pytest.mark.parametrize(
    "said",
    [
        "user has given to me.\nAction: delete_file\nAction Input: {}.txt",
        "user has given to me.\nAction: search\nAction Input: {}",
        "user has given to me.\n**Action:** search {}",
        "user has given to me.\n<code>\nresult = get_capital(country={})\n</code>",
        "user has given to me.\n```python\nget_capital({})\n```",
        "user has given to me: search(query={})",
        "user has given to me.\n<search>\n<query>{}</query>\n</search>",
        "user has given to me, and that one is {}.txt",
        "user has given to me, and that one is “{}”.",
    ],
)
def test_calls_in_an_agent_s_text_that_differ_in_one_word(said: str) -> None:
    messages = [TASK]
    for word in ("quokka", "wombat", "koala", "numbat", "bilby"):
        messages += [says(THOUGHT + said.format(word)), user("Observation: done")]
    assert Run(messages).is_silent


def test_long_numbers_are_not_rounded() -> None:
    made = [("get", {"id": 10**24 + n}, "not ready") for n in range(9)]
    assert Run([TASK, *steps(*made)]).is_silent


def test_page_4_is_not_page_3_in_a_text_either() -> None:
    """A ReAct agent's calls are text: alike but for a number."""
    said = []
    for page in range(8):
        said += [
            says(
                "Thought: I have to go through the whole document before I can answer the question "
                f"of the user in full.\nAction: read\nAction Input: page {page}"
            ),
            user("Observation: nothing here."),
        ]
    assert Run([TASK, *said]).is_silent


def test_a_user_who_asks_again_starts_a_new_count() -> None:
    ask: list[Json] = []
    for _ in range(6):
        ask += [user("What's the weather?"), *step("weather", {"city": "Oslo"}, "4 °C, rain")]
        ask += [says(f"Still 4 °C and rain ({len(ask)}).")]
    assert Run(ask).is_silent


@pytest.mark.parametrize("said", ["Run the tests again.", "HEARTBEAT: is there anything to do?"])
def test_a_user_who_asks_for_the_same_each_time_may_get_the_same_again(said: str) -> None:
    """The agent acts on it and comes to an end each time: it is the user who goes round."""
    ask = [user(said), *step("bash", {"command": "make test"}, "3 passed"), says("All pass.")]
    run = Run(ask * 6)
    assert run.is_silent
    assert not run.nearly


@pytest.mark.parametrize("answer", ["HEARTBEAT_OK", "```\nnothing to do\n```"])
def test_a_heartbeat_within_one_transcript(answer: str) -> None:
    """The fourth one ended in 422."""
    assert Run([user("HEARTBEAT 12:01"), says(answer)] * 6).is_silent


def test_tools_that_only_say_ok_are_broken_no_earlier() -> None:
    """Each key is answered alike, so the first of the same ones seems to answer to one of them."""
    made = [("press_key", {"key": key}, "ok") for key in ("up", "down", "down", "down", "left")]
    assert not Run([TASK, *steps(*made)]).broken
    made[3:3] = made[1:2]
    assert Run([TASK, *steps(*made)]).broken == [(5, "repetition")]


def test_two_of_a_kind_are_no_loop() -> None:
    assert Run([TASK, *steps(*[("bash", {"command": "ls"}, "a b")] * 2)]).is_silent


def test_a_round_that_was_gone_twice_but_found_something_each_time() -> None:
    """OpenHands: A B, C D, C D."""
    made = [
        ("run", {"command": "ls"}, "a b"),
        ("read", {"path": "a"}, "text of a"),
        ("run", {"command": "pwd"}, "/home"),
        ("read", {"path": "b"}, "text of b"),
    ]
    run = Run([TASK, *steps(*made), user("Go on."), *steps(*made[2:])])
    assert run.is_silent


def test_an_error_that_moves_is_news() -> None:
    """OpenHands: the same call, a syntax error in another line each time."""
    made = [
        ("run_ipython", {"code": "print('"}, f"Cell In[1], line {n}\nSyntaxError: invalid syntax")
        for n in range(10, 50, 10)
    ]
    assert Run([TASK, *steps(*made)]).is_silent


def test_whoever_leaves_a_circle_for_something_known_is_let_go() -> None:
    other = ("read_file", {"path": "a"}, "text of a")
    made = [other, *[("run", {"command": "ls"}, "a b")] * 9, other]
    assert max(number for number, _ in Run([TASK, *steps(*made)]).broken) == 10


def test_a_chat_about_this_and_that() -> None:
    chat = []
    for n in range(30):
        chat += [user(f"Question {n}: what is {n} + {n}?"), says(f"It is {2 * n}.")]
    assert Run(chat).is_silent
