"""mlx-lm's own parsers as an oracle: what they read from a well-formed block, we read too."""

from __future__ import annotations

import importlib
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlx_stack_proxy.tool_validation.text_calls import rescue
from mlx_stack_proxy.tool_validation.tools import ToolSet
from tests.tool_validation.test_text_samples import calls

pytest.importorskip("mlx_lm")

TOOL = {
    "type": "object",
    "properties": {
        "title": {"type": "string"},
        "year": {"type": "integer"},
        "price": {"type": "number"},
        "rare": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
}
TOOLS = ToolSet({"find_book": TOOL})
OPENAI = [{"type": "function", "function": {"name": "find_book", "parameters": TOOL}}]

# Text that no parser trims, and that none of the formats takes for its own markup or another type.
TITLES = st.from_regex(r"[A-Za-z][A-Za-z0-9 .,;:!?'éß京]{0,20}[a-z]x", fullmatch=True)
ARGUMENTS = st.fixed_dictionaries(
    {"title": TITLES},
    optional={
        "year": st.integers(-5000, 5000),
        "price": st.floats(0.5, 1e6).map(lambda value: round(value, 2)),
        "rare": st.booleans(),
        "tags": st.lists(TITLES.filter(lambda tag: "'" not in tag), max_size=3),
    },
)


def written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def qwen(arguments: dict[str, Any]) -> str:
    parameters = "".join(
        f"<parameter={key}>\n{written(value)}\n</parameter>\n" for key, value in arguments.items()
    )
    return f"<function=find_book>\n{parameters}</function>"


def glm(arguments: dict[str, Any], prefix: str = "") -> str:
    pairs = "".join(
        f"<{prefix}arg_key>{key}</{prefix}arg_key><{prefix}arg_value>{written(value)}"
        f"</{prefix}arg_value>"
        for key, value in arguments.items()
    )
    return f"find_book{pairs}"


def minimax(arguments: dict[str, Any]) -> str:
    parameters = "".join(
        f'<parameter name="{key}">{written(value)}</parameter>\n'
        for key, value in arguments.items()
    )
    return f'<invoke name="find_book">\n{parameters}</invoke>'


def minicpm(arguments: dict[str, Any]) -> str:
    parameters = "".join(
        f'<param name="{key}">{written(value)}</param>' for key, value in arguments.items()
    )
    return f'"find_book">{parameters}'


def kimi_k3(arguments: dict[str, Any]) -> str:
    kinds = {str: "string", bool: "boolean", int: "number", float: "number", list: "array"}
    values = "".join(
        f'<|open|>argument key="{key}" type="{kinds[type(value)]}"<|sep|>{written(value)}'
        "<|close|>argument<|sep|>"
        for key, value in arguments.items()
    )
    return f'<|open|>call tool="find_book" index="1"<|sep|>{values}<|close|>call<|sep|>'


def gemma4(arguments: dict[str, Any]) -> str:
    quote = '<|"|>'

    def value_of(value: Any) -> str:
        if isinstance(value, str):
            return f"{quote}{value}{quote}"
        if isinstance(value, list):
            return f"[{','.join(map(value_of, value))}]"
        return json.dumps(value)

    values = ",".join(f"{key}:{value_of(value)}" for key, value in arguments.items())
    return f"call:find_book{{{values}}}"


WRITERS = {
    "qwen3_coder": qwen,
    "glm47": glm,
    "longcat": lambda arguments: glm(arguments, "longcat_"),
    "minimax_m2": minimax,
    "minicpm5": minicpm,
    "kimi_k3": kimi_k3,
    "gemma4": gemma4,
}


@pytest.mark.parametrize("module", WRITERS)
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(arguments=ARGUMENTS)
def test_we_read_what_mlx_lm_reads(module: str, arguments: dict[str, Any]) -> None:
    try:
        parser = importlib.import_module(f"mlx_lm.tool_parsers.{module}")
    except ImportError:
        pytest.skip(f"this mlx-lm has no parser {module}")
    body = WRITERS[module](arguments)
    parsed = parser.parse_tool_call(body, OPENAI)
    expected = parsed if isinstance(parsed, list) else [parsed]
    found = rescue(f"{parser.tool_call_start}{body}{parser.tool_call_end}", TOOLS)
    assert calls(found) == [(call["name"], call["arguments"]) for call in expected]
    assert found.content == ""
