import orjson
import pytest

from benchmarks.cost import bodies


def test_of_a_seen_history_all_but_two_messages_were_sent_before() -> None:
    batch = bodies.seen(400, 100)(3 * bodies.SESSIONS)
    sent: dict[str, int] = {}
    for raw in batch.prepare:
        messages = orjson.loads(raw)["messages"]
        sent[first_user(messages)] = len(messages)

    sizes = []
    for raw in batch.measured:
        messages = orjson.loads(raw)["messages"]
        assert len(messages) == sent[first_user(messages)] + 2
        sent[first_user(messages)] = len(messages)
        sizes.append(len(messages))

    assert sum(sizes) / len(sizes) == pytest.approx(400, abs=1)


def test_tools_are_the_same_each_time_or_new_each_time() -> None:
    same, new = bodies.offering(40)(32), bodies.offering(40, new=True)(32)
    lists = [[orjson.loads(raw)["tools"] for raw in one.measured] for one in (same, new)]
    assert all(each == bodies.tools(40) for each in lists[0])
    for number in range(40):
        assert (
            len({orjson.dumps(each[number]["function"]["parameters"]) for each in lists[1]}) == 32
        )
        assert len({each[number]["function"]["name"] for each in lists[1]}) == 1


def first_user(messages: list[dict]) -> str:
    return next(message["content"] for message in messages if message["role"] == "user")
