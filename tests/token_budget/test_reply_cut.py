"""A limit on the reply that upstream ignores: what is cut, and that nothing else is."""

from __future__ import annotations

from typing import Any

import pytest

from mlx_stack_proxy.engine.attempt import Attempt
from mlx_stack_proxy.settings_source import from_mapping
from mlx_stack_proxy.token_budget.stage import TokenBudget
from tests.engine.exchanges import attempt, client_request, exchange
from tests.support.replies import DONE, chunk, completion, data, usage_chunk

Json = dict[str, Any]
NOTE = {"type": "function", "function": {"name": "note", "parameters": {"type": "object"}}}
CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "note", "arguments": '{"text": "four"}'},
}
ROLE, END = chunk({"role": "assistant", "content": ""}), chunk({}, "stop")
WORDS = [f"w{n}" for n in range(3000)]
THOUGHTS = {"reasoning_content": " ".join(WORDS)}


def limited(limit: int = 10, *, local: bool = True, **asked: Any) -> Attempt:
    """An attempt for a client that doesn't stream, whose request has gone up with this limit."""
    settings = from_mapping({"tiers": {"fast": {"model": "fast", "local": local}}})
    whole = exchange(client_request(stream=False, max_tokens=limit, **asked), tiers=("fast",))
    one = attempt(whole, stages=[TokenBudget(settings)])
    one.on_request()
    return one


def taken(one: Attempt, *chunks: Json, at_once: bool = True) -> tuple[Json, bool]:
    """What the client gets of these chunks, and whether it is told that they were cut."""
    frames = [*map(data, chunks), DONE]
    for read in [b"".join(frames)] if at_once else frames:
        if not one.over:
            one.feed(read)
    one.settle()
    return one.completion(), one.remarks().reply_notes.get("Truncated") == "max_output_tokens"


def texts(*pieces: str, index: int = 0) -> list[Json]:
    return [chunk({"content": piece}, index=index) for piece in pieces]


def test_text_is_cut_at_the_limit_and_its_usage_is_counted() -> None:
    whole, cut = taken(limited(), ROLE, *texts(*(f"{word} " for word in WORDS[:50])))
    (choice,) = whole["choices"]
    assert (choice["message"]["content"].split(), choice["finish_reason"]) == (WORDS[:10], "length")
    assert cut
    # Clients count on it, and what was cut off can't say it.
    usage = whole["usage"]
    assert usage["completion_tokens"] > 0 < usage["prompt_tokens"]
    assert usage["total_tokens"] == usage["completion_tokens"] + usage["prompt_tokens"]


TWELVE = [f"{word} " for word in WORDS[:12]]


@pytest.mark.parametrize(
    ("pieces", "finish", "text", "ends"),
    [
        (texts(*TWELVE), "stop", TWELVE[:10], "length"),
        # A complete call stays, and the answer has the whole limit where the thoughts took it.
        (
            [*texts(*TWELVE), chunk({"tool_calls": [{"index": 0, **CALL}]})],
            "tool_calls",
            TWELVE[:10],
            "tool_calls",
        ),
        (
            [*(chunk({"reasoning_content": word}) for word in TWELVE), *texts(*TWELVE[:5])],
            "stop",
            TWELVE[:5],
            "stop",
        ),
    ],
    ids=["text", "a call behind it", "an answer behind thoughts"],
)
def test_each_choice_has_the_limit(
    pieces: list[Json], finish: str, text: list[str], ends: str
) -> None:
    other = [*texts("b", index=1), chunk({}, "stop", index=1)]
    whole, _ = taken(limited(n=2, tools=[NOTE]), ROLE, *pieces, chunk({}, finish), *other)
    first, second = whole["choices"]
    assert (first["message"]["content"], first["finish_reason"]) == ("".join(text), ends)
    assert len(first["message"].get("tool_calls", ())) == (ends == "tool_calls")
    assert (second["message"]["content"], second["finish_reason"]) == ("b", "stop")


@pytest.mark.parametrize(
    ("said", "finish"),
    [
        ({**THOUGHTS, "content": "The answer is 4."}, "stop"),
        ({**THOUGHTS, "content": None, "tool_calls": [CALL]}, "tool_calls"),
    ],
)
def test_who_thinks_too_long_answers_all_the_same(said: Json, finish: str) -> None:
    """A whole reply that can be used is not thrown away for what came before it."""
    one = limited(tools=[NOTE])
    one.take_completion(completion(said, finish))
    assert one.settle() is None
    (choice,) = one.completion()["choices"]
    assert choice["finish_reason"] == finish
    assert choice["message"].get("tool_calls") == said.get("tool_calls")
    if finish == "stop":
        assert choice["message"]["content"] == said["content"]


@pytest.mark.parametrize(
    "pieces",
    [
        # o200k and its like have tokens of marks that go on in the next line.
        ["x", " =", " f", "(", "y", " );\n//", " then", " )\n\n/*", " more", " */\n/"],
        # A relay may cut words in two.
        ["one two ", "three fo", "ur five ", "six seve", "n eight ", "nine ten"],
        [" " * 40, "\n\n\n", "a"],
    ],
)
def test_what_keeps_to_the_limit_is_left_alone(pieces: list[str]) -> None:
    whole, cut = taken(limited(), ROLE, *texts(*pieces), END)
    (choice,) = whole["choices"]
    assert choice["message"]["content"] == "".join(pieces)
    assert (choice["finish_reason"], cut) == ("stop", False)


@pytest.mark.parametrize("local", [True, False])
@pytest.mark.parametrize("text", ["hello", "\u5c0f\u888b\u9f20" * 20])
@pytest.mark.parametrize("tokens", [60, 20_000, 2**64 - 1])
def test_nothing_is_cut_by_upstreams_count(tokens: int, text: str, local: bool) -> None:
    """It may be wrong, or of thoughts that nobody sees."""
    counted = usage_chunk({"prompt_tokens": 9, "completion_tokens": tokens})
    whole, cut = taken(limited(local=local), ROLE, *texts(text), END, counted)
    (choice,) = whole["choices"]
    assert (choice["message"]["content"], choice["finish_reason"], cut) == (text, "stop", False)


def with_usage(one: Json, tokens: int, **more: Any) -> Json:
    return {**one, "usage": {"prompt_tokens": 9, "completion_tokens": tokens, **more}}


@pytest.mark.parametrize(
    ("limit", "pieces", "counted"),
    [
        (10, [chunk({"refusal": f"no{n} "}) for n in range(100)], range(1, 13)),
        (30, texts(*(str(n % 10) for n in range(100))), range(30, 32)),
        # A usage that came at first is not the whole.
        (30, [with_usage(ROLE, 1), *texts(*WORDS[:100])], range(30, 99)),
        # One that counts along is.
        (10, [with_usage(one, n) for n, one in enumerate(texts(*["-" * 60] * 50), 1)], [11]),
    ],
    ids=["a refusal", "digits", "usage at first", "usage that counts along"],
)
def test_what_was_written_until_the_cut_is_counted(
    limit: int, pieces: list[Json], counted: Any
) -> None:
    whole, cut = taken(limited(limit), ROLE, *pieces, at_once=False)
    assert cut
    assert whole["usage"]["completion_tokens"] in counted
    # All that one read of the network brought was written, too.
    at_once, cut = taken(limited(limit), ROLE, *pieces)
    assert at_once["choices"] == whole["choices"] and cut


def test_a_whole_usage_in_the_piece_that_is_one_too_many_stays() -> None:
    last = with_usage(chunk({"content": "x"}, "stop"), 11, prompt_tokens_details={"x": 1})
    whole, _ = taken(limited(), ROLE, *texts(*WORDS[:10]), last)
    assert whole["usage"] == {**last["usage"], "total_tokens": 20}
