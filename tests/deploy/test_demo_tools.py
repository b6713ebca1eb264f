"""The demo tools answer as their schemas say, and the question generator keeps its promises."""

import json

import jsonschema
import pytest
from demo_tiers import dialogues, phrases, questions, scoring, tools, values


def strings(arguments):
    for value in arguments.values():
        if isinstance(value, str):
            yield value
        elif isinstance(value, list):
            yield from value


def test_there_are_six_tools_with_valid_schemas():
    assert len(tools.TOOLS) == len(set(tools.NAMES)) == 6
    for name in tools.NAMES:
        jsonschema.Draft202012Validator.check_schema(tools.schema(name))
    kinds = {p["type"] for n in tools.NAMES for p in tools.schema(n)["properties"].values()}
    assert kinds == {"string", "number", "integer", "boolean", "array"}
    assert any("enum" in p for n in tools.NAMES for p in tools.schema(n)["properties"].values())


@pytest.mark.parametrize("split", questions.SPLITS)
def test_questions_expect_calls_that_their_schemas_allow(split):
    asked = list(questions.questions(5, split, 150))
    assert {question.tool for question in asked} == set(tools.NAMES)
    for question in asked:
        jsonschema.validate(question.arguments, tools.schema(question.tool))
        assert scoring.check(question.tool, json.dumps(question.arguments)) is None
        for value in strings(question.arguments):
            assert value in question.text


def test_questions_and_tasks_depend_on_the_seed_only():
    for split in questions.SPLITS:
        assert list(questions.questions(1, split, 50)) == list(questions.questions(1, split, 50))
        assert list(questions.questions(1, split, 50)) != list(questions.questions(2, split, 50))
        assert list(questions.tasks(1, split, 12)) == list(questions.tasks(1, split, 12))
    first, more = questions.questions(1, "unseen", 10), questions.questions(1, "unseen", 20)
    assert list(first) == list(more)[:10]


def test_seen_questions_are_those_of_training():
    assert list(questions.seen(30)) == dialogues.Writer.seen[:30]


@pytest.mark.parametrize("split", ["unseen", "rephrased"])
def test_no_held_out_value_is_ever_trained_on(split):
    few = set(tools.STATUSES) | set(tools.UNITS)
    for question in questions.questions(3, split, 300):
        for value in strings(question.arguments):
            assert value in few or values.is_held_out(value)
    for question in questions.questions(3, "train", 300):
        for value in strings(question.arguments):
            assert value in few or not values.is_held_out(value)


def test_held_out_phrasings_are_not_trained_on():
    for group in (*phrases.ASK.values(), *phrases.FOLLOW_UP.values()):
        assert not set(group["train"]) & set(group["held_out"])


@pytest.mark.parametrize("split", questions.SPLITS)
def test_the_expected_calls_of_a_task_lead_to_its_end(split):
    for task in questions.tasks(4, split, 60):
        world = questions.world(task)
        for (name, arguments), result in zip(task.calls, task.results, strict=True):
            jsonschema.validate(arguments, tools.schema(name))
            assert world.call(name, arguments) == result
            assert "error" not in result
        assert (world.notes, world.statuses) == (task.notes, task.statuses)
        assert all(fact in task.answer for fact in task.facts) and task.facts


def test_tasks_have_one_to_six_calls():
    assert [len(task.calls) for task in questions.tasks(1, "unseen", 12)] == [1, 2, 3, 4, 5, 6] * 2


def test_tasks_use_what_earlier_calls_found():
    used = 0
    for task in questions.tasks(9, "unseen", 60, low=3):
        for place, (_, arguments) in enumerate(task.calls):
            found = [value for result in task.results[:place] for value in strings(result)]
            used += any(v in found and v not in task.text for v in strings(arguments))
    assert used >= 40


class TestWorld:
    def test_converting_there_and_back(self):
        world = tools.World(1)
        there = world.call(
            "convert_currency", {"amount": 1000, "from_currency": "USD", "to_currency": "EUR"}
        )
        back = world.call(
            "convert_currency",
            {"amount": there["amount"], "from_currency": "EUR", "to_currency": "USD"},
        )
        assert there["currency"] == "EUR" and abs(back["amount"] - 1000) < 1

    @pytest.mark.parametrize(
        ("name", "arguments"),
        [
            ("no_such_tool", {}),
            ("get_order", {}),
            ("update_order", {"order_id": "A-1043", "status": "SHIPPED"}),
            ("convert_currency", {"amount": "x", "from_currency": "A", "to_currency": "B"}),
        ],
    )
    def test_what_cannot_be_done_is_an_error_result(self, name, arguments):
        assert "error" in tools.World(1).call(name, arguments)

    def test_missing_orders_are_errors(self):
        world = tools.World(1)
        missing = next(str(i) for i in range(1000) if world.missing(str(i)))
        assert "not found" in world.call("get_order", {"order_id": missing})["error"]

    def test_json_in_json_out(self):
        world = tools.World(1)
        assert json.loads(world.call_json("get_order", '{"order_id": "A-1043"}'))["total"]
        assert "error" in json.loads(world.call_json("get_order", '{"order_id": '))
        assert "error" in json.loads(world.call_json("get_order", "[]"))


def reply(name=None, arguments=None, content=None, finish="stop", calls=1):
    message = {"role": "assistant", "content": content}
    if name:
        message["tool_calls"] = [{"function": {"name": name, "arguments": arguments}}] * calls
    return {"choices": [{"message": message, "finish_reason": finish}]}


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (reply("get_order", '{"order_id": "A-1"}'), "exact"),
        (reply("get_order", '{"order_id": "A-2"}'), "wrong_value"),
        (reply("get_customer", '{"customer_id": "A-1"}'), "wrong_tool"),
        (reply("get_order", "{}"), "missing_argument"),
        (reply("get_order", '{"order_id": 1}'), "wrong_type"),
        (reply("get_order", "[]"), "wrong_type"),
        (reply("get_order", '{"order_id": "A-1", "x": 1}'), "extra_argument"),
        (reply("get_order", '{"order_id": "A-1"'), "broken_json"),
        (reply("update_order", '{"order_id": "A", "status": "PAID"}'), "not_in_enum"),
        (reply("getOrder", '{"order_id": "A-1"}'), "unknown_tool"),
        (reply("get_order", '{"order_id": "A-1"}', calls=3), "repeated_calls"),
        (reply(finish="tool_calls"), "broken_json"),
        (reply(content=""), "empty"),
        (reply(content="```json\n{}\n```"), "call_as_text"),
        (reply(content="Action: get_order\nAction Input: {}"), "call_as_text"),
        (reply(content="I do not know."), "text_instead_of_call"),
        (reply(content="no way " * 50, finish="length"), "repeated_text"),
        ({"error": "500"}, "server_error"),
    ],
)
def test_replies_are_classified(body, kind):
    assert scoring.classify(body, "get_order", {"order_id": "A-1"}) == kind
