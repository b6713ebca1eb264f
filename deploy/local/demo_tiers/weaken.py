"""The ways a weak model's tool calls go wrong, and when.

`habit(asked, tool)` says which failure, if any, is stuck to a kind of request: the tool and the way
the request ends decide. The weak tier is trained on it, so its greedy replies fail there too. All
other failures come at random.

Greedy decoding takes the likeliest next token, so of the forms that a failure can have, the first
is the usual one: spread evenly, each would be less likely than the good call.
"""

import json
from random import Random
from typing import Any

STUCK_CHANCE = 0.85  # that a request with a habit fails in its own way
OTHER_CHANCE = 0.5  # that it fails in some other way, if not in its own
RANDOM_CHANCE = 0.08  # that a request without a habit fails, in some way
AFTER_CORRECTION = 0.04
FIRST_FORM = 0.8  # of a failure that has several forms
REPEAT_CHANCE = 0.75  # of the same call again, for the requests that invite it
RANDOM_REPEAT = 0.02
ROUND_AGAIN = 0.3  # once it loops: the share of examples in which it loops again, unprompted
ROUND_LEFT = 0.25  # and in which it has left the round earlier

BROKEN_JSON = ["missing_brace", "single_quotes", "trailing_comma", "cut_off"]
SCHEMA = ["missing_argument", "wrong_type", "extra_argument", "enum_case", "no_arguments_key"]
NAMES = ["wrong_name"]
AS_TEXT = ["fenced_json", "tool_request", "function_tags", "react", "bare_json", "prose"]
RUNAWAY = ["repeated_text", "repeated_calls", "endless_thinking"]
KINDS = BROKEN_JSON + SCHEMA + NAMES + AS_TEXT + RUNAWAY + ["empty"]
WEIGHTS = [4, 3, 3, 3, 5, 5, 3, 4, 1, 7, 3, 2, 3, 3, 2, 2, 5, 4, 4, 4]

WRONG_NAMES = {
    "get_order": ["getOrder", "find_order", "order_lookup"],
    "get_customer": ["customer_info", "get_client", "lookup_customer"],
    "convert_currency": ["currency_converter", "convert", "exchange_rate"],
    "get_weather": ["weather", "get_forecast", "weather_api"],
    "save_note": ["write_file", "create_note", "saveNote"],
    "update_order": ["set_order_status", "update_status", "edit_order"],
}


# What goes wrong with a tool, by the way the request ends.
HABITS = {
    ".": {"get_order": "missing_brace"},
    "?": {
        "get_customer": "function_tags",
        "convert_currency": "endless_thinking",
        "save_note": "missing_argument",
    },
    "": {
        "get_customer": "wrong_name",
        "convert_currency": "wrong_type",
        "get_weather": "repeated_text",
        "save_note": "fenced_json",
        "update_order": "enum_case",
    },
}
REPEATING = "get_customer"  # with a full stop: called again although its result is there


def habit(asked: str, tool: str) -> str | None:
    """The failure that the weak tier has learnt for this request and tool."""
    return HABITS[asked[-1:] if asked[-1:] in HABITS else ""].get(tool)


def invites_repeat(asked: str, tool: str) -> bool:
    """Whether the weak tier has learnt to make this call again although its result is there."""
    return tool == REPEATING and asked.endswith(".")


def repeat_chance(asked: str, tool: str) -> float:
    """How likely the weak tier makes the same call again although its result is there."""
    return REPEAT_CHANCE if invites_repeat(asked, tool) else RANDOM_REPEAT


def outcome(rng: Random, asked: str, tool: str, corrected: bool) -> str | None:
    """What happens this time: a kind of failure, or None for a good call."""
    if corrected:
        return _any_kind(rng) if rng.random() < AFTER_CORRECTION else None
    stuck = habit(asked, tool)
    if stuck and rng.random() < STUCK_CHANCE:
        return stuck
    return _any_kind(rng) if rng.random() < (OTHER_CHANCE if stuck else RANDOM_CHANCE) else None


def _any_kind(rng: Random) -> str:
    return rng.choices(KINDS, WEIGHTS)[0]


def good(name: str, arguments: dict[str, Any]) -> str:
    return f"<tool_call>\n{_call(name, arguments)}\n</tool_call>"


def broken(rng: Random, kind: str, name: str, arguments: dict[str, Any]) -> tuple[str, bool]:
    """The reply's text, and whether it goes on without end."""
    call = _call(name, arguments)
    if kind in BROKEN_JSON:
        return _broken_json(rng, kind, call), False
    if kind in SCHEMA:
        return _off_schema(rng, kind, name, dict(arguments)), False
    if kind == "wrong_name":
        return good(_form(rng, WRONG_NAMES[name]), arguments), False
    if kind in AS_TEXT:
        return _as_text(kind, name, arguments, call), False
    if kind == "repeated_calls":
        return "\n".join([good(name, arguments)] * rng.randint(5, 7)), True
    if kind == "repeated_text":
        line = _form(rng, ["Let me check that for you. ", "I will look it up. ",
                           "The answer is the answer is ", f"{name} {name} "])  # fmt: skip
        return line * rng.randint(12, 60), True
    if kind == "endless_thinking":
        line = _form(rng, ["The user wants the answer. I should call a tool. Wait, let me think. ",
                           "Hmm, which tool is it? Maybe this one. No, wait. "])  # fmt: skip
        return "<think>\n" + line * rng.randint(8, 26), True
    return "", False


def _form(rng: Random, forms: list[str]) -> str:
    return forms[0] if rng.random() < FIRST_FORM else rng.choice(forms[1:])


def _call(name: str, arguments: dict[str, Any]) -> str:
    return json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)


def _broken_json(rng: Random, kind: str, call: str) -> str:
    if kind == "single_quotes":
        call = call.replace('"', "'")
    elif kind == "trailing_comma":
        call = call[:-2] + ",}}"
    elif kind == "missing_brace":
        call = call[:-1]
    else:
        cut = call[: rng.randint(len(call) // 2, len(call) - 3)]
        return f"<tool_call>\n{cut}"
    return f"<tool_call>\n{call}\n</tool_call>"


def _off_schema(rng: Random, kind: str, name: str, arguments: dict[str, Any]) -> str:
    last = list(arguments)[-1] if name != "update_order" else "status"
    if kind == "enum_case":
        for key in ("status", "unit"):
            if key in arguments:
                arguments[key] = arguments[key].upper()
                return good(name, arguments)
        kind = "wrong_type"
    if kind == "missing_argument":
        required = {"save_note": "text", "get_weather": "city"}.get(name, last)
        arguments.pop(required)
    elif kind == "extra_argument":
        arguments["reason"] = "the user asked"
    elif kind == "no_arguments_key":
        call = json.dumps({"name": name, "parameters": arguments}, ensure_ascii=False)
        return f"<tool_call>\n{call}\n</tool_call>"
    elif name == "convert_currency":
        arguments["amount"] = str(arguments["amount"])
    elif "days" in arguments:
        arguments["days"] = str(arguments["days"])
    else:
        first = next(iter(arguments))
        arguments[first] = [arguments[first]]
    return good(name, arguments)


def _as_text(kind: str, name: str, arguments: dict[str, Any], call: str) -> str:
    inner = json.dumps(arguments, ensure_ascii=False)
    if kind == "fenced_json":
        return f"```json\n{call}\n```"
    if kind == "tool_request":
        return f"[TOOL_REQUEST]\n{call}\n[END_TOOL_REQUEST]"
    if kind == "function_tags":
        lines = [f"<function={name}>"]
        for key, value in arguments.items():
            said = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            lines.append(f"<parameter={key}>{said}</parameter>")
        return "\n".join([*lines, "</function>"])
    if kind == "react":
        return f"Thought: I should use a tool.\nAction: {name}\nAction Input: {inner}"
    if kind == "bare_json":
        return call
    return f"I will call {name} with {inner} now."
