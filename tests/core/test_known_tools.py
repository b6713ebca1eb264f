"""Bodies that offer the tools of one before: they are taken for it, and the request is the same."""

from __future__ import annotations

import gc
import json
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest.mock import Mock

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core import known_tools
from app.core.client_request import parse
from app.core.known_bodies import KnownBodies
from app.core.known_tools import MOST, MOST_BYTES, KnownTools
from app.core.messages import BLOCK, Messages
from app.errors import ProxyError
from app.tool_calls.schemas import clear_caches, tool_set
from app.tool_calls.tool_list import ToolList, made_of
from tests.core.exchanges import attempt, exchange
from tests.core.transcripts import SYSTEM, WORDS, WRITERS, Json, Writes, said, told

ASKED = {"role": "user", "content": 'What of "tools":[ and {"tools": [1]}?'}


def tools(count: int = 4, name: str = "read") -> list[Json]:
    return [
        {
            "type": "function",
            "function": {
                "name": f"{name}_{number}",
                "description": f"Reads </{name}> & more. {WORDS}",
                "parameters": {
                    "type": "object",
                    "properties": {"tools": {"type": "array"}, "n": {"maximum": 1.5e300}},
                },
            },
        }
        for number in range(count)
    ]


def offer(offered: Any, **others: Any) -> Json:
    return {**told([SYSTEM, ASKED]), "tools": offered, **others}


def read(known: KnownBodies, raw: bytes) -> Json:
    """The body of a request that came, which is what it is to whom nothing is known."""
    found = parse(raw, known).body
    plain = {**found, "messages": list(found["messages"])}
    assert plain == parse(raw).body == orjson.loads(raw)
    return dict(found)


# Those that are known again; the others are read whole each time.
KNOWN_WRITERS = {name: WRITERS[name] for name in ("compact", "spaced", "as Go")}


def is_known(known: KnownBodies, raw: bytes) -> bool:
    return type(read(known, raw)["tools"]) is ToolList


@pytest.mark.parametrize("writes", KNOWN_WRITERS.values(), ids=KNOWN_WRITERS)
@pytest.mark.parametrize("first", [False, True])
def test_tools_that_came_before_are_taken_for_those(writes: Writes, first: bool) -> None:
    known = KnownBodies()
    body = offer(tools())
    if first:
        body = {"tools": body.pop("tools"), **body}
    assert not is_known(known, writes(body))
    again = {**body, "messages": [SYSTEM, {"role": "user", "content": "More"}]}
    taken = read(known, writes(again))["tools"]
    assert type(taken) is ToolList
    assert read(known, writes(body))["tools"] is taken
    assert taken.written in writes(again)
    assert parse(writes(again), known).size == len(writes(again))


@pytest.mark.parametrize("writes", WRITERS.values(), ids=WRITERS)
def test_however_they_are_written_the_request_is_the_same(writes: Writes) -> None:
    known = KnownBodies()
    for number in range(3):
        read(known, writes(offer(tools(4 + number // 2))))


def test_other_tools_are_others() -> None:
    known = KnownBodies()
    read(known, orjson.dumps(offer(tools(4))))
    for other in (tools(3), tools(5), tools(4, "reaD"), [*tools(4), None][:4][::-1]):
        assert not is_known(known, orjson.dumps(offer(other)))


@pytest.mark.parametrize(
    "body",
    [
        offer([], metadata={"tools": tools()}),
        offer("none", metadata={"tools": tools()}),
        {**told([{"role": "user", "content": [{"tools": tools()}]}]), "tools": tools(1)},
        {"metadata": {"tools": tools()}, **told([ASKED])},
        {"metadata": [{"tools": tools()}, {"tools": tools()}], **offer(tools())},
        {'my"tools': tools(), **told([ASKED])},
    ],
)
def test_what_stands_elsewhere_is_not_offered(body: Json) -> None:
    known = KnownBodies()
    read(known, orjson.dumps(offer(tools())))
    raw = orjson.dumps(body)
    for _ in range(2):
        if isinstance(body.get("tools"), str):
            with pytest.raises(ProxyError, match="must be an array"):
                parse(raw, known)
        else:
            read_ = parse(raw, known).body
            assert read_ == orjson.loads(raw) == body
            assert orjson.dumps(read_) == raw


@pytest.mark.parametrize("last", [tools(2, "other"), None, [], tools()])
def test_of_two_lists_the_last_one_counts(last: Any) -> None:
    known = KnownBodies()
    read(known, orjson.dumps(offer(tools())))
    twice = orjson.dumps(offer(tools()))[:-1] + b',"tools":%b}' % orjson.dumps(last)
    for _ in range(2):
        assert read(known, twice)["tools"] == last


@pytest.mark.parametrize(
    "spoilt",
    [
        lambda raw: raw[:-1],
        lambda raw: raw + b"}",
        lambda raw: raw.replace(b'],"temperature"', b']"temperature"'),
        lambda raw: raw.replace(b'"tools":[', b'"tools":[,'),
        lambda raw: raw.replace(b'"tools":[', b'"tools"[', 1),
        lambda raw: raw[:-2] + b",]}",
        lambda raw: raw.replace(b'"messages"', b'"massages"'),
    ],
)
def test_what_is_no_request_is_refused_in_the_same_words(spoilt: Any) -> None:
    known = KnownBodies()
    raw = orjson.dumps(offer(tools()))
    read(known, raw)
    with pytest.raises(ProxyError) as plain:
        parse(spoilt(raw))
    with pytest.raises(ProxyError) as found:
        parse(spoilt(raw), known)
    assert found.value.encoded() == plain.value.encoded()


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("writes", KNOWN_WRITERS.values(), ids=KNOWN_WRITERS)
def test_beside_messages_that_came_before(writes: Writes, first: bool) -> None:
    known = KnownBodies()
    transcript = [SYSTEM, *said(4 * BLOCK)]

    def sent(count: int) -> bytes:
        body = {**offer(tools()), "messages": transcript[:count]}
        return writes({"tools": body.pop("tools"), **body} if first else body)

    found = []
    for count in (BLOCK + 2, 2 * BLOCK + 2, 3 * BLOCK + 2, 4 * BLOCK):
        body = read(known, sent(count))
        found.append(body["messages"].before if type(body["messages"]) is Messages else 0)
    assert found == [0, *(1 + blocks * BLOCK for blocks in (1, 2, 3))]
    made = attempt(exchange(parse(sent(4 * BLOCK), known)))
    made.on_request()
    whole = orjson.loads(made.take_content())
    assert (whole["tools"], whole["messages"]) == (tools(), transcript[: 4 * BLOCK])


@pytest.mark.parametrize("writes", KNOWN_WRITERS.values(), ids=KNOWN_WRITERS)
def test_they_go_upstream_as_they_came(writes: Writes) -> None:
    known = KnownBodies()
    raw = writes(offer(tools()))
    for expected in (orjson.dumps(tools()), writes(tools())):
        made = attempt(exchange(parse(raw, known)))
        made.on_request()
        sent = made.take_content()
        assert orjson.loads(sent)["tools"] == tools()
        assert expected in sent
        assert not made.take_content()  # a reply may be open for long
    assert type(made.request.body["tools"]) is ToolList  # what stages look at is no fragment


def test_what_is_made_of_them_is_made_once_and_the_same() -> None:
    known = KnownBodies()
    raw = orjson.dumps(offer(tools()))
    first = parse(raw, known)
    again, third = parse(raw, known), parse(raw, known)
    assert again.prompt_tokens == first.prompt_tokens
    assert tool_set(again.tools) is tool_set(third.tools) is tool_set(first.tools)
    of: Any = Mock(return_value=1)
    assert [made_of(one.tools, of) for one in (again, third)] == [1, 1]
    of.assert_called_once_with(tools())


def test_a_list_of_no_length_or_no_use_is_left_alone() -> None:
    known = KnownBodies()
    for offered in ([], None, tools(1)[:0], [{"type": "web_search"}]):
        raw = orjson.dumps(offer(offered, user="x" * 4096))
        for _ in range(2):
            assert read(known, raw)["tools"] == offered
    assert not known.tools._lists


def test_tools_that_are_refused_are_not_kept() -> None:
    known = KnownBodies()
    raw = orjson.dumps(offer([*tools(), {"type": "function", "function": {}}]))
    for _ in range(2):
        with pytest.raises(ProxyError, match=r"tools\[4\]"):
            parse(raw, known)


def test_what_orjson_cannot_write_is_not_kept() -> None:
    known = KnownBodies(Mock(side_effect=AssertionError))
    deep = b"[" * 300 + b"]" * 300
    raw = orjson.dumps(offer(tools())).replace(b'"n":', b'"x":%b,"n":' % deep)
    big = orjson.dumps(offer(tools())).replace(b'"maximum":', b'"x":%d,"maximum":' % 2**70)
    twice = orjson.dumps(offer(tools())).replace(b'"type":"object"', b'"type":1,"type":"object"')
    for spoilt in (raw, big, twice):
        for _ in range(2):
            assert not is_known(known, spoilt)


def test_it_forgets_the_oldest() -> None:
    known = KnownTools()
    bodies = [offer(tools(4, f"name_{number}")) for number in range(MOST + 3)]
    for body in bodies:
        known.learn(orjson.dumps(body), body)
    assert len(known._lists) == MOST
    assert known.taken(orjson.dumps(bodies[2])) is None
    assert known.taken(orjson.dumps(bodies[3])) is not None  # and is the newest now
    known.learn(orjson.dumps(bodies[0]), bodies[0])
    assert known.taken(orjson.dumps(bodies[3])) is not None
    assert known.taken(orjson.dumps(bodies[4])) is None


def test_it_keeps_no_more_bytes_than_it_may() -> None:
    known = KnownTools()
    for number in range(20):
        body = offer([*tools(4, f"name_{number}"), {"type": "x", "text": "y" * (MOST_BYTES // 8)}])
        known.learn(orjson.dumps(body), body)
        assert sum(len(one.written) for one in known._lists) <= MOST_BYTES
    assert len(known._lists) == 7
    body = offer([{"type": "x", "text": "y" * MOST_BYTES}])
    known.learn(orjson.dumps(body), body)
    assert len(known._lists) == 7


@pytest.mark.parametrize("depth", range(240, 256))
def test_what_is_nested_too_deeply_is_refused_again(depth: int) -> None:
    known = KnownBodies()
    deep = b"[" * depth + b"]" * depth
    raw = orjson.dumps(offer(tools())).replace(b'"n":', b'"x":%b,"n":' % deep)
    said_ = []
    for _ in range(3):
        made = attempt(exchange(parse(raw, known)))
        said_.append(made.on_request())
    assert said_[0] == said_[1] == said_[2]


@pytest.mark.parametrize(("before", "found"), [(0, True), (1, True), (2, False)])
def test_so_many_keys_of_that_name_are_looked_at(before: int, found: bool) -> None:
    known = KnownBodies()
    body = {**{f"m{n}": {"tools": [n]} for n in range(before)}, **offer(tools())}
    assert not is_known(known, orjson.dumps(body))
    assert is_known(known, orjson.dumps(body)) is found


@pytest.mark.parametrize(("before", "found"), [(15, True), (16, False)])
def test_so_many_places_of_that_name_are_looked_at(before: int, found: bool) -> None:
    known = KnownBodies()
    body = {"metadata": ["tools"] * before, **offer(tools(), messages=[SYSTEM])}
    assert not is_known(known, orjson.dumps(body))
    assert is_known(known, orjson.dumps(body)) is found


def test_what_python_takes_for_equal_is_not() -> None:
    known = KnownBodies()
    whole, float_ = tools(), tools()
    whole[0]["function"]["parameters"]["properties"]["n"]["maximum"] = 1
    float_[0]["function"]["parameters"]["properties"]["n"]["maximum"] = 1.0
    assert whole == float_
    for first, other in ((whole, float_), (float_, whole)):
        raw = json.dumps({"metadata": {"tools": first}, **offer(other)}).encode()
        for body in (raw, raw, json.dumps(offer(first)).encode()):
            assert orjson.dumps(read(known, body)["tools"]) == orjson.dumps(
                orjson.loads(body)["tools"]
            )


def test_what_was_compiled_of_them_is_forgotten_with_the_caches() -> None:
    known = KnownBodies()
    raw = orjson.dumps(offer(tools()))
    parse(raw, known)
    compiled = weakref.ref(tool_set(parse(raw, known).tools))
    clear_caches()
    gc.collect()
    assert compiled() is None


def test_a_fault_in_it_is_told_and_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    told_: list[str] = []
    known = KnownBodies(lambda part, error: told_.append(f"{part}: {error}"))
    raw = orjson.dumps(offer(tools()))
    read(known, raw)
    monkeypatch.setattr(known.tools, "taken", Mock(side_effect=KeyError("taken")))
    monkeypatch.setattr(known_tools, "_written", Mock(side_effect=KeyError("_written")))
    assert parse(raw, known).body == orjson.loads(raw)
    assert told_ == ["known_tools: 'taken'", "known_tools: '_written'"]


def test_threads_may_share_one() -> None:
    known = KnownBodies()
    bodies = [orjson.dumps(offer(tools(4, f"name_{number}"))) for number in range(MOST + 8)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            done = [pool.submit(read, known, raw) for _ in range(4) for raw in bodies]
        assert all(one.result() for one in done)
    finally:
        sys.setswitchinterval(before)
    assert len({one.written for one in known.tools._lists}) == len(known.tools._lists) == MOST


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False)
    | st.text(max_size=8) | st.sampled_from(["tools", '"tools":[', "messages"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.text(max_size=4) | st.just("tools"), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@given(st.data())
def test_whatever_is_offered_is_read_as_if_nothing_was_known(data: st.DataObject) -> None:
    known = KnownBodies(Mock(side_effect=AssertionError))
    parts = [tools(), tools(4, "other")]
    parse(orjson.dumps(offer(parts[0])), known)
    for _ in range(data.draw(st.integers(1, 5))):
        offered = data.draw(st.sampled_from(parts) | st.lists(JSON, max_size=2))
        others = data.draw(st.dictionaries(st.sampled_from(["tools", "metadata", "x"]), JSON))
        body = {**others, **told([ASKED]), "metadata": others}
        body["tools" if data.draw(st.booleans()) else "functions_"] = offered
        raw = data.draw(st.sampled_from(list(WRITERS.values())))(body)
        assert came_to(raw, known) == came_to(raw, None)


def came_to(raw: bytes, known: KnownBodies | None) -> Any:
    """The request, and what goes upstream, by value and by the order of keys."""
    try:
        request = parse(raw, known)
    except ProxyError as error:
        return error.encoded()
    made = attempt(exchange(request))
    if refused := made.on_request():
        return refused
    sent = orjson.loads(made.take_content())
    return orjson.dumps(request.body), {name: orjson.dumps(sent[name]) for name in sorted(sent)}
