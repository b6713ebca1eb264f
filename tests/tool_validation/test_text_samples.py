"""One call, written in every format: what the tests of the rescue share."""

from __future__ import annotations

import json
from typing import Any

from mlx_stack_proxy.tool_validation.formats.table import FORMATS
from mlx_stack_proxy.tool_validation.text_calls import Holdback, Rescued, rescue
from mlx_stack_proxy.tool_validation.tools import ToolSet

SCHEMAS: dict[str, dict[str, Any]] = {
    "find_book": {
        "type": "object",
        "properties": {"title": {"type": "string"}, "year": {"type": "integer"}},
    },
    "list_shelves": {"type": "object", "properties": {}},
    "shelve": {
        "type": "object",
        "properties": {
            "title": {"type": "string"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "place": {"type": "object", "properties": {"row": {"type": "integer"}}},
            "rare": {"type": "boolean"},
            "price": {"type": ["number", "null"]},
        },
    },
}
TOOLS = ToolSet(SCHEMAS)

# The call that is written in each format.
MOMO = ("find_book", {"title": "Momo", "year": 1973})
JSON = '{"name": "find_book", "arguments": {"title": "Momo", "year": 1973}}'
ARGUMENTS = '{"title": "Momo", "year": 1973}'
PYTHON = 'find_book(title="Momo", year=1973)'
_GLM = "<{0}arg_key>title</{0}arg_key>\n<{0}arg_value>Momo</{0}arg_value>\n"
_GLM += "<{0}arg_key>year</{0}arg_key>\n<{0}arg_value>1973</{0}arg_value>\n"
_INVOKE = (
    '<{0}invoke name="find_book">\n<{0}parameter name="title">Momo</{0}parameter>\n'
    '<{0}parameter name="year">1973</{0}parameter>\n</{0}invoke>\n'
)
_M3 = "]<]minimax[>["
_ELEMENTS = "<title>Momo</title>\n<year>1973</year>\n"
_FUNCTION = (
    "<function=find_book>\n<parameter=title>\nMomo\n</parameter>\n"
    "<parameter=year>\n1973\n</parameter>\n</function>"
)

# Formats that can't write the call of all others: a test of their own has them.
OF_OTHER_TOOLS = {"cwm"}

# By the format's name.
SAMPLES: dict[str, list[str]] = {
    "hermes_json": [
        f"<tool_call>\n{JSON}\n</tool_call>",
        f"<tool_call>[{JSON}]",
        f'<tool_call>\n{{"find_book": {ARGUMENTS}}}\n</tool_call>',
    ],
    "qwen3_xml": [
        f"<tool_call>\n{_FUNCTION}\n</tool_call>",
        _FUNCTION,
        f"<seed:tool_call>{_FUNCTION}</seed:tool_call>",
    ],
    "glm": [
        "<tool_call>find_book\n" + _GLM.format("") + "</tool_call>",
        "<tool_call>find_book title=Momo year=1973</tool_call>",
        f"<tool_call>{PYTHON}</tool_call>",
    ],
    "longcat": [
        f"<longcat_tool_call>{JSON}</longcat_tool_call>",
        "<longcat_tool_call>find_book\n" + _GLM.format("longcat_") + "</longcat_tool_call>",
    ],
    "hunyuan_json": [f"<tool_calls>[{JSON}]</tool_calls>", f"<tool_calls>\n{JSON}\n</tool_calls>"],
    "hunyuan_v3": [
        f"<tool_calls>\n<tool_call>find_book<tool_sep>\n{_GLM.format('')}</tool_call>\n</tool_calls>"
    ],
    "hunyuan_v4": [
        "<tool_calls:opensource><tool_call:opensource>find_book<arg_key:opensource>title"
        "</arg_key:opensource><arg_value:opensource>Momo</arg_value:opensource>"
        "<arg_key:opensource>year</arg_key:opensource><arg_value:opensource>1973"
        "</arg_value:opensource></tool_call:opensource></tool_calls:opensource>"
    ],
    "llama_python_tag": [
        f"<|python_tag|>{JSON}<|eom_id|>",
        '<|python_tag|>find_book.call(title="Momo", year=1973)',
    ],
    "llama_function_tag": [f"<function=find_book>{ARGUMENTS}</function>"],
    "pythonic": [f"[{PYTHON}]", f"<|python_start|>[{PYTHON}]<|python_end|>"],
    "lfm2": [
        f"<|tool_call_start|>[{PYTHON}]<|tool_call_end|>",
        f"<|tool_call_start|>{JSON}<|tool_call_end|>",
    ],
    "olmo3": [f"<function_calls>{PYTHON}</function_calls>"],
    "mistral": [
        f"[TOOL_CALLS] [{JSON}]",
        f"[TOOL_CALLS]find_book{ARGUMENTS}",
        f"[TOOL_CALLS]find_book[ARGS]{ARGUMENTS}",
        f"[TOOL_CALLS]find_book[CALL_ID]a1b2c3[ARGS]{ARGUMENTS}",
    ],
    "gemma_tool_code": [
        f"```tool_code\n{PYTHON}\n```",
        f"```tool_code\nprint(default_api.{PYTHON})\n```",
        f"tool_code = {PYTHON}\nprint(tool_code)",
        f"```tool_call\n{PYTHON}\n```",
    ],
    "gemma4": [
        "<|tool_call>call:find_book(title: 'Momo', year: 1973)<tool_call|>",
        '<|tool_call>call:find_book{title:<|"|>Momo<|"|>,year:1973}<tool_call|>',
        f"<|tool_call>call:{PYTHON}",
    ],
    "functiongemma": [
        "<start_function_call>call:find_book{title:<escape>Momo<escape>,year:1973}"
        "<end_function_call>"
    ],
    "deepseek_v3": [
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>find_book\n"
        f"```json\n{ARGUMENTS}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>find_book<｜tool▁sep｜>"
        f"{ARGUMENTS}<｜tool▁call▁end｜><｜tool▁calls▁end｜><｜end▁of▁sentence｜>",
    ],
    "deepseek_dsml": [
        f"<｜DSML｜function_calls>\n{_INVOKE.format('｜DSML｜')}</｜DSML｜function_calls>",
        f"<｜DSML｜tool_calls>{_INVOKE.format('｜DSML｜')}</｜DSML｜tool_calls>",
        f"<｜DSML｜ calls>\n{_INVOKE.format('｜DSML｜ ')}</｜DSML｜ calls>",
        f"<｜GCML｜tool_calls>{_INVOKE.format('｜GCML｜')}</｜GCML｜tool_calls>",
    ],
    "glimmer": [
        f"to=find_book<|message|><atem:function_calls>\n{_INVOKE.format('atem:')}"
        "</atem:function_calls><|eot|>",
        f"<|message|><atem:function_calls>\n{_INVOKE.format('atem:')}</atem:function_calls>",
    ],
    "minimax_m2_invoke": [
        f"<minimax:tool_call>{_INVOKE.format('')}</minimax:tool_call>",
        'minimax:tool_call>\ninvoke name="find_book">\nparameter name="title">Momoparameter>\n'
        'parameter name="year">1973parameter>\ninvoke>\nminimax:tool_call>',
    ],
    "minimax_m3": [
        f'{_M3}<tool_call>{_M3}<invoke name="find_book">{_M3}<title>Momo{_M3}</title>'
        f"{_M3}<year>1973{_M3}</year>{_M3}</invoke>{_M3}</tool_call>"
    ],
    "invoke_xml": [
        f"<function_calls>\n{_INVOKE.format('')}</function_calls>",
        _INVOKE.format(""),
        f"<antml:function_calls>{_INVOKE.format('antml:')}</antml:function_calls>",
    ],
    "xml_elements": [
        f"<find_book>\n{_ELEMENTS}</find_book>",
        f"<find_book>{ARGUMENTS}</find_book>",
        f"<tool_call>\n<find_book>\n{_ELEMENTS}</find_book>\n</tool_call>",
        f"<tool_call>\n<function>find_book</function>\n{ARGUMENTS}\n</tool_call>",
        f'<tool_call name="find_book">\n{ARGUMENTS}\n</tool_call>',
        "<tool_use>\n<tool_name>find_book</tool_name>\n"
        f"<parameters>\n{_ELEMENTS}</parameters>\n</tool_use>",
        "<use_mcp_tool>\n<server_name>library</server_name>\n<tool_name>find_book</tool_name>\n"
        f"<arguments>\n{ARGUMENTS}\n</arguments>\n</use_mcp_tool>",
    ],
    "kimi_k2": [
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.find_book:0"
        f"<|tool_call_argument_begin|>{ARGUMENTS}<|tool_call_end|><|tool_calls_section_end|>"
    ],
    "kimi_k3": [
        '<|open|>tools<|sep|><|open|>call tool="find_book" index="1"<|sep|>'
        '<|open|>argument key="title" type="string"<|sep|>Momo<|close|>argument<|sep|>'
        '<|open|>argument key="year" type="number"<|sep|>1973<|close|>argument<|sep|>'
        "<|close|>call<|sep|><|close|>tools<|sep|>"
    ],
    "granite": [f"<|tool_call|>[{JSON}]"],
    "granite20b": [f"<function_call> {JSON}"],
    "glaive": [
        f"<functioncall> {JSON} <|endoftext|>",
        f'<functioncall> {{"name": "find_book", "arguments": \'{ARGUMENTS}\'}} <|endoftext|>',
    ],
    "phi4mini": [f"functools[{JSON}]"],
    "lm_studio": [f"[TOOL_REQUEST]{JSON}[END_TOOL_REQUEST]"],
    "nemotron": [f"<TOOLCALL>[{JSON}]</TOOLCALL>"],
    "command_r": [
        '<|START_ACTION|>[\n{"tool_call_id": "0", "tool_name": "find_book", '
        f'"parameters": {ARGUMENTS}}}\n]<|END_ACTION|>'
    ],
    "gigachat3": [
        f"<|message_sep|>\n\nfunction call<|role_sep|>\n{JSON}</s>",
        f"<|function_call|>{JSON}",
    ],
    "apertus": [f'<|tools_prefix|>[{{"find_book": {ARGUMENTS}}}]<|tools_suffix|>'],
    "internlm2": [f"<|action_start|><|plugin|>\n{JSON}<|action_end|>"],
    "inkling": [
        '<|message_model|>x<|content_invoke_tool_json|>{"name": "find_book", '
        f'"args": {ARGUMENTS}}}<|end_message|>'
    ],
    "harmony": [
        "<|channel|>analysis<|message|>I look it up.<|end|><|start|>assistant<|channel|>commentary"
        f" to=functions.find_book <|constrain|>json<|message|>{ARGUMENTS}<|call|>"
    ],
    "minicpm5_xml": [
        '<function name="find_book"><param name="title"><![CDATA[Momo]]></param>'
        '<param name="year">1973</param></function>',
        '<function name="find_book">\n<parameter name="title">Momo</parameter>\n'
        '<parameter name="year">1973</parameter>\n</function>',
        '<tool_call>\n<function name="find_book">\n<parameter name="title">\nMomo\n</parameter>\n'
        '<parameter name="year">\n1973\n</parameter>\n</function>\n</tool_call>',
    ],
    "functionary": [
        f">>>find_book\n{ARGUMENTS}",
    ],
    "solar_open": [
        "<|tool_calls|><|tool_call:begin|>call00000<|tool_call:name|>find_book"
        f"<|tool_call:args|>{ARGUMENTS}<|tool_call:end|><|calls|>"
    ],
    "plamo3": [
        "<|plamo:begin_tool_requests:plamo|><|plamo:begin_tool_request:plamo|>"
        "<|plamo:begin_tool_name:plamo|>find_book<|plamo:end_tool_name:plamo|>"
        f"<|plamo:begin_tool_arguments:plamo|><|plamo:msg|>{ARGUMENTS}"
        "<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|>"
        "<|plamo:end_tool_requests:plamo|>"
    ],
    "dots": [f"<dots_function_call>{JSON}</dots_function_call>"],
    "calling_tool_bracket": [
        f"[Calling tool: find_book({ARGUMENTS})]",
        f"[Calling tool: {PYTHON}]",
    ],
    "react": [f"Thought: look it up.\nAction: find_book\nAction Input: {ARGUMENTS}\n"],
    "json_fence": [
        f"```json\n{JSON}\n```",
        f"```\n[{JSON}]\n```",
        f"```tool_code\n{JSON}\n```",
    ],
    "bare_call": [f"```python\n{PYTHON}\n```", f"```\n{PYTHON}\n```"],
    "bare_json": [
        JSON,
        f"[{JSON}]",
        f'{{"type": "function", "function": {JSON}}}',
        f'{{"name": "find_book", "parameters": {ARGUMENTS}}}',
        f'{{"tool_calls": [{JSON}]}}',
        f'{{"functionCall": {{"name": "find_book", "args": {ARGUMENTS}}}}}',
    ],
}
EACH = [(name, text) for name, texts in SAMPLES.items() for text in texts]
# Those that are no JSON and no Python list by themselves, nor in a fence of no format's own.
MARKED = [
    (name, text)
    for name, text in EACH
    if name != "bare_json"
    and not text.startswith(("```json", "```\n", "```xml", "```python"))
    and not (name == "pythonic" and text.startswith("["))
]


def calls(found: Rescued) -> list[tuple[str, Any]]:
    """The names and arguments of the calls that were found."""
    return [(call.name, json.loads(call.arguments)) for call in found.calls]


def evenly(text: str, tools: ToolSet = TOOLS) -> Rescued:
    """What a text is read as, which is the same where each of its characters comes alone."""
    whole, holdback = rescue(text, tools), Holdback(tools)
    flowed = "".join(map(holdback.feed, text))
    rest = holdback.finish()
    assert Rescued(rest.calls, flowed + rest.content, rest.unknown, rest.unoffered) == whole
    return whole


def test_every_format_of_the_table_has_a_sample() -> None:
    assert {row.name for row in FORMATS} == {*SAMPLES, *OF_OTHER_TOOLS}
