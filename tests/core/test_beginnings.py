"""Bodies that begin as one before: read as far as they are new, to the same request."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest.mock import Mock

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.beginnings import Beginnings, _Block, _Search
from app.core.client_request import parse
from app.core.known_bodies import KnownBodies
from app.core.messages import BLOCK
from app.core.verdicts import Rejected
from tests.core.exchanges import attempt, exchange
from tests.core.transcripts import (
    KNOWN,
    SYSTEM,
    WORDS,
    WRITERS,
    Json,
    Writes,
    check,
    learn,
    said,
    spaced,
    told,
)


@pytest.mark.parametrize("lead", [0, 1, 2])
@pytest.mark.parametrize("writes", WRITERS.values(), ids=WRITERS)
def test_only_what_is_new_is_read(writes: Writes, lead: int) -> None:
    beginnings = Beginnings()
    transcript = [*[SYSTEM] * lead, *said(4 * BLOCK)]
    known = 0
    for count in range(lead + BLOCK - 1, len(transcript), 5):
        raw = writes(told(transcript[:count]))
        assert check(learn(beginnings, raw), raw) == known
        blocks = (count - lead) // BLOCK
        # What ends the list has no comma behind it, and is learnt a request later.
        whole = blocks - (count == lead + blocks * BLOCK)
        known = lead + whole * BLOCK if whole else 0
        assert check(beginnings.body(raw), raw) == known
    assert known == lead + 3 * BLOCK


@pytest.mark.parametrize(
    "others",
    [
        {"tools": [{"type": "function", "function": {"name": "read"}}]},
        {"stream": True, "metadata": {"messages": [{"role": "user"}]}},
        {"stop": ['"messages":[', '{"messages":[{"role":"system"}]}', "messages"]},
        {"user": "messages", "service_tier": "messages", "store": "messages"},
    ],
)
@pytest.mark.parametrize("place", [0, 1, 9])
def test_wherever_the_messages_stand(others: Json, place: int) -> None:
    beginnings = Beginnings()
    for count in (2 * BLOCK, 2 * BLOCK + 7):
        fields = list({"model": "fast", **others}.items())
        fields.insert(place, ("messages", [SYSTEM, *said(count)]))
        raw = orjson.dumps(dict(fields))
        found = beginnings.body(raw)
        known = check(found, raw)
        learn(beginnings, raw)
    assert known == 1 + BLOCK


def test_another_head_and_other_settings_than_before() -> None:
    beginnings = Beginnings()
    learn(beginnings, orjson.dumps(told([SYSTEM, *said(BLOCK + 4)])))
    for others in ({"temperature": 1.0}, {"model": "standard"}, {"stream": True, "seed": 3}):
        raw = orjson.dumps(told([SYSTEM, *said(BLOCK + 6)], **others))
        check(beginnings.body(raw), raw)
    at_noon = {"role": "system", "content": "It is 12:00."}
    raw = orjson.dumps(told([at_noon, *said(BLOCK + 6)]))
    assert check(beginnings.body(raw), raw) == 1 + BLOCK, "the time in it is new each time"


def test_a_transcript_that_was_edited_is_read_from_there() -> None:
    beginnings = Beginnings()
    messages = said(3 * BLOCK + 2)
    learn(beginnings, orjson.dumps(told(messages)))
    for place, known in ((0, 0), (BLOCK + 3, BLOCK), (3 * BLOCK, 3 * BLOCK)):
        edited = [*messages[:place], {"role": "user", "content": "else"}, *messages[place + 1 :]]
        raw = orjson.dumps(told(edited))
        assert check(beginnings.body(raw), raw) == known
    raw = orjson.dumps(told(messages[: BLOCK + 1]))
    assert check(beginnings.body(raw), raw) == BLOCK


@pytest.mark.parametrize("place", [0, 1, 7, BLOCK, BLOCK + 7])
def test_what_is_of_the_same_length_is_told_apart(place: int) -> None:
    beginnings = Beginnings()
    messages = [{"role": "system", "content": "It is 12:00."}, *said(2 * BLOCK + 2)]
    raw = orjson.dumps(told(messages))
    learn(beginnings, raw)
    role = messages[place]["role"]
    other = {"content": "It is 12:01."} if place == 0 else {"role": role.capitalize()}
    messages[place] = {**messages[place], **other}
    edited = orjson.dumps(told(messages))
    assert len(edited) == len(raw) and edited != raw
    known = {0: 1 + 2 * BLOCK, BLOCK + 7: 1 + BLOCK}.get(place, 0)
    assert check(beginnings.body(edited), edited) == known


def test_all_of_the_systems() -> None:
    beginnings = Beginnings()
    for messages in ([SYSTEM] * 80, [*[SYSTEM] * 80, *said(BLOCK + 1)], [*[SYSTEM] * 90, *said(1)]):
        raw = orjson.dumps(told(messages))
        check(learn(beginnings, raw), raw)
        assert check(beginnings.body(raw), raw) in {0, 80 + BLOCK}


def test_agents_with_and_without_a_system_prompt_take_turns() -> None:
    beginnings = Beginnings()
    transcripts = [[SYSTEM] * lead + said(BLOCK + 8, str(lead)) for lead in (0, 1, 2)]
    for count in (BLOCK + 4, BLOCK + 6):
        raws = [orjson.dumps({"messages": messages[:count]}) for messages in transcripts]
        found = [check(learn(beginnings, raw), raw) for raw in raws]
    assert found == [BLOCK, BLOCK + 1, BLOCK + 2]


def test_many_system_prompts() -> None:
    beginnings = Beginnings()
    for _ in range(2):
        known = []
        for number in range(100):
            lead = {"role": "system", "content": f"You are agent {number}."}
            raw = spaced(told([lead, *said(BLOCK + 1, str(number))]))
            known.append(check(learn(beginnings, raw), raw))
    assert known == [1 + BLOCK] * 100


def test_a_block_does_not_begin_with_the_systems_messages() -> None:
    beginnings = Beginnings()
    first, second = said(BLOCK), [SYSTEM, *said(BLOCK + 4)]
    learn(beginnings, orjson.dumps(told([*first, *second])))
    raw = orjson.dumps(told(second))
    body = beginnings.body(raw)
    check(body, raw)
    learn(beginnings, raw)
    assert check(beginnings.body(raw), raw) == 1 + BLOCK


@pytest.mark.parametrize(
    "odd",
    [
        b'{"role": "user", "role": "assistant", "content": ""}',
        b'{"role": "user", "content": "", "n": 123456789012345678901234567890}',
    ],
)
def test_what_not_all_read_alike_is_never_sent_as_it_came(odd: bytes) -> None:
    beginnings = Beginnings()
    raw = spaced(told(said(2 * BLOCK + 4))).replace(b'{"role"', odd + b', {"role"', 1)
    assert check(learn(beginnings, raw), raw) == 0
    assert check(beginnings.body(raw), raw) == 0


@pytest.mark.parametrize("one", [True, 1.0])
def test_what_python_takes_for_the_same_is_not(one: Any) -> None:
    beginnings = Beginnings()
    first, second = ([{**m, "n": n} for m in said(BLOCK + 2)] for n in (one, 1))
    both = b'{"messages": %b, "messages": %b}' % (spaced(first), spaced(second))
    learn(beginnings, both)
    alone = b'{"messages": %b}' % spaced(first)
    check(beginnings.body(alone), alone)


def test_what_is_nested_too_deeply_is_refused_again() -> None:
    known = KnownBodies()
    deep = b"[" * 300 + b"]" * 300
    raw = orjson.dumps(told([SYSTEM, *said(BLOCK + 4)])).replace(
        b'"content":', b'"content":%b,"x":' % deep, 1
    )
    for _ in range(3):
        made = attempt(exchange(parse(raw, known)))
        assert isinstance(made.on_request(), Rejected)


def test_who_has_many_alike_is_no_burden_to_others() -> None:
    raw = b'{"role":"user"},' * 100
    search = _Search(raw)
    blocks = [_Block(len(raw[:end]), raw[:16], hash(raw[:end]), 1) for end in range(1600, 0, -16)]
    others = [block._replace(digest=0) for block in blocks]
    assert search.has(blocks[0], 0) and not search.has(others[0], 0)
    assert not any(search.has(block, 0) for block in others)
    assert not search.has(blocks[9], 0), "too much was hashed: it is read whole"
    assert _Search(raw).has(blocks[9], 0)


def test_only_so_much_is_scanned_of_one_body() -> None:
    beginnings = Beginnings()
    raw = spaced(told([{"role": "user", "content": str(n)} for n in range(70 * BLOCK)]))
    known = [check(learn(beginnings, raw), raw) for _ in range(3)]
    assert known == [0, 64 * BLOCK, 69 * BLOCK]


def test_threads_may_share_one() -> None:
    beginnings = Beginnings(known=9)
    raws = [orjson.dumps(told(said(3 * BLOCK + 1, name))) for name in "abcdefgh"]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda raw: learn(beginnings, raw), raws * 40))
    finally:
        sys.setswitchinterval(before)
    assert beginnings._count == sum(map(len, beginnings._known.values())) <= 9


def test_a_fault_in_it_is_told_and_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    said_: list[str] = []
    known = KnownBodies(lambda part, error: said_.append(f"{part}: {error}"))
    learn(known.beginnings, orjson.dumps(told(said(BLOCK + 1, "other"))))
    for name in ("body", "learn"):
        monkeypatch.setattr(known.beginnings, name, Mock(side_effect=KeyError(name)))
    request = parse(KNOWN, known)
    assert request.body == orjson.loads(KNOWN)
    assert said_ == ["beginnings: 'body'", "beginnings: 'learn'"]


@pytest.mark.parametrize("same", [0, 1000])
def test_many_transcripts_of_one_agent_are_told_apart(same: int) -> None:
    beginnings = Beginnings()
    many = [said(BLOCK + 1, "x" * same + name) for name in map(str, range(50))]
    for messages in many:
        learn(beginnings, orjson.dumps(told([SYSTEM, *messages])))
    for messages in many:
        raw = orjson.dumps(told([SYSTEM, *messages, *said(1)]))
        assert check(beginnings.body(raw), raw) == 1 + BLOCK


AT = KNOWN.rindex(b'],"temperature"')


@pytest.mark.parametrize(
    "raw",
    [
        KNOWN[:AT],
        KNOWN[:-1],
        KNOWN + b"}",
        KNOWN + b" {}",
        KNOWN.replace(b'],"temperature"', b',],"temperature"'),
        KNOWN.replace(b'],"temperature"', b'}],"temperature"'),
        KNOWN.replace(b'"temperature":0.2', b'"temperature":NaN'),
        KNOWN.replace(b'"temperature"', b'"temp\xff"'),
        orjson.dumps(told(said(BLOCK)))[:-1],
        KNOWN[: KNOWN.index(b'{"role":"tool"', KNOWN.rindex(b'"tool_call_id"') - 20)] + b"]}",
    ],
)
def test_what_is_no_json_is_left_to_who_says_so(raw: bytes) -> None:
    beginnings = Beginnings()
    learn(beginnings, KNOWN)
    with pytest.raises(orjson.JSONDecodeError):
        orjson.loads(raw)
    assert beginnings.body(raw) is None


@pytest.mark.parametrize(
    "more",
    [
        b',"messages":[{"role":"user","content":"else"}]',
        rb',"\u006dessages":[{"role":"user","content":"else"}]',
        b',"messages":null',
        b',"model":"standard"',
        b',"temperature":1,"temperature":2',
    ],
)
def test_the_last_of_two_fields_of_one_name_counts(more: bytes) -> None:
    beginnings = Beginnings()
    learn(beginnings, KNOWN)
    raw = KNOWN[:-1] + more + b"}"
    found = beginnings.body(raw)
    if b"essages" in more:
        assert found is None
    else:
        assert check(found, raw) == BLOCK


@pytest.mark.parametrize("first_is_known", [False, True])
def test_a_first_list_that_does_not_count_is_not_learnt(first_is_known: bool) -> None:
    lists = [spaced(said(BLOCK + 1, name)) for name in ("first", "second")]
    beginnings = Beginnings()
    alone = [b'{"messages": %b}' % each for each in lists]
    if first_is_known:
        learn(beginnings, alone[0])
    raw = b'{"messages": %b, "messages": %b}' % (lists[0], lists[1])
    learn(beginnings, raw)
    known = [check(beginnings.body(each), each) for each in alone]
    assert known == [BLOCK * first_is_known, BLOCK]
    assert beginnings.body(raw) is None or not first_is_known


def test_a_long_system_prompt() -> None:
    beginnings = Beginnings()
    for count in (BLOCK + 2, BLOCK + 4):
        raw = spaced(told([{"role": "system", "content": WORDS * 60}, *said(count)]))
        known = check(learn(beginnings, raw), raw)
    assert len(WORDS) * 60 > 4096 and known == 1 + BLOCK


def test_it_forgets_the_oldest() -> None:
    beginnings = Beginnings(known=12)
    raws = [orjson.dumps(told(said(3 * BLOCK + 1, name))) for name in "abcdef"]
    for raw in raws:
        learn(beginnings, raw)
    known = [check(beginnings.body(raw), raw) for raw in reversed(raws)]
    assert known[0] == 3 * BLOCK and known[-1] == 0


_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    ['"messages":[', "],", "\\", '{"', "\x7f", " "]
)
_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | _TEXTS,
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(_TEXTS, inside, max_size=3),
    max_leaves=6,
)
_MESSAGES = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "tool", "system"]), "content": _VALUES}
)


_OTHERS = st.dictionaries(_TEXTS, _VALUES, max_size=2)
_CLIENTS = st.tuples(st.sampled_from(list(WRITERS.values())), _OTHERS, _OTHERS)


@given(st.data())
def test_whatever_comes_is_what_it_says(data: st.DataObject) -> None:
    beginnings = Beginnings(data.draw(st.sampled_from([4, 4096])))
    few = data.draw(st.lists(_MESSAGES, min_size=1, max_size=6))
    tail = WORDS * 2
    transcript = [{**few[n % len(few)], "name": f"{n}{tail}"} for n in range(3 * BLOCK)]
    clients = data.draw(st.lists(_CLIENTS, min_size=1, max_size=2))
    for _ in range(data.draw(st.integers(3, 8))):
        count = data.draw(st.integers(BLOCK - 2, len(transcript)))
        messages = transcript[:count]
        if data.draw(st.integers(0, 3)) == 3:
            messages[data.draw(st.integers(0, count - 1))] = data.draw(_MESSAGES)
        writes, before, behind = data.draw(st.sampled_from(clients))
        raw = writes({**before, "messages": messages, **behind})
        try:
            orjson.loads(raw)
        except orjson.JSONDecodeError:
            assert beginnings.body(raw) is None
            continue
        check(beginnings.body(raw), raw)
        learn(beginnings, raw)
