"""Texts that only look like calls come back as they are."""

from __future__ import annotations

import json

import pytest

from app.tool_calls.text_calls import Rescued, rescue
from tests.tool_calls.test_text_samples import JSON, PYTHON, SAMPLES, TOOLS

TAGGED = f"<tool_call>{JSON}</tool_call>"
MARKED = [
    text
    for name in (
        "hermes_json",
        "qwen3_xml",
        "glm",
        "mistral",
        "llama_python_tag",
        "kimi_k2",
        "lfm2",
    )
    for text in SAMPLES[name]
]


@pytest.mark.parametrize("call", MARKED)
@pytest.mark.parametrize(
    "around",
    [
        "The model would write `{}` here.",
        'The tag "{}" starts a call.',
        "Look:\n```\n{}\n```\nThat is it.",
        "```python\ntext = '''{}'''\n```",
        "~~~text\n{}\n~~~",
        "<example>\n{}\n</example>",
        "<!-- {} -->",
    ],
)
def test_quotes_code_and_examples(around: str, call: str) -> None:
    text = around.replace("{}", call)
    assert rescue(text, TOOLS) == Rescued((), text)


@pytest.mark.parametrize(
    "text",
    [
        f"The model would write {TAGGED} to find it.",
        f"For example:\n\n{TAGGED}\n",
        f"For example, to find a book the assistant emits:\n{TAGGED}",
        f"Here is an example of a tool call.\n{TAGGED}",
        f"A call looks like this: {TAGGED}",
        f"The format is: {TAGGED}",
        f"Let me show you what a call looks like:\n{TAGGED}",
        f"I'll provide an example:\n{TAGGED}",
        f"To clarify, I'll sketch an example:\n{TAGGED}",
        f"Tool calls such as {TAGGED} are read by the server.",
        f"## Example 2\n{TAGGED}\n",
        f"**Beispiel:**\n{TAGGED}",
        f"Test fixture:\n{TAGGED}\nExpected: one call",
        f"Wrong: {TAGGED}\nRight: use the API.",
        f"In your parser, handle text like:\n{TAGGED}",
        f"Earlier I called:\n{TAGGED}\nand it returned nothing.",
        f"A typical exchange:\n\nUser: find a book\nAssistant: {TAGGED}\n",
        f"Tool result for {TAGGED}: 5 hits",
        f"functools[{JSON}] is Phi-4's format.",
        f"This is an example of Mistral's format: [TOOL_CALLS] [{JSON}]",
        f"* [TOOL_REQUEST]{JSON}[END_TOOL_REQUEST] – LM Studio's",
        f"Examples of tool calls:\n\n{TAGGED}\n\n{TAGGED}",
        f"For example:\n\n{TAGGED}\n\nor\n\n[TOOL_CALLS] [{JSON}]",
        f"I've already called the tool:\n\n{TAGGED}\n\nIt found nothing.",
        f"I have run the following call:\n{TAGGED}",
        f"The previous call was:\n{TAGGED}",
        f"A model that wants a book emits\n\n{TAGGED}\n\nand the server reads it.",
        f"In the template a call is\n{TAGGED}\nwhich the parser reads.",
        f"Here's how the call would look:\n{TAGGED}",
        f"Let me show you how the call looks:\n{TAGGED}",
        f"Let me explain the format:\n{TAGGED}",
        f"I'll show you what the syntax is:\n{TAGGED}",
        f"Let me show examples of tool calls:\n{TAGGED}",
        f"Open-source models use this format:\n{TAGGED}",
        f"List of example calls:\n{TAGGED}",
        f"Check the following format:\n{TAGGED}",
        f"I need to mention what I called:\n{TAGGED}",
        f"我来说明格式如下：\n{TAGGED}",
        f"Claude's format:\n{TAGGED}",
        f"## Hermes format\n\n{TAGGED}\n\nThe tags are tokens.",
        f"Expected output:\n{TAGGED}",
        f"Usage:\n{TAGGED}",
        f"Ein Aufruf sieht so aus:\n{TAGGED}",
        f"Например:\n{TAGGED}",
        f"例えば:\n{TAGGED}",
        f"调用格式为：\n{TAGGED}",
        f"Voici un exemple d'appel :\n{TAGGED}",
        f"Voici à quoi ressemble un appel d'outil :\n{TAGGED}",
        f"Par exemple, le modèle écrit :\n{TAGGED}",
        f"Hier ein Beispiel für einen Aufruf:\n{TAGGED}",
        f"Das Modell schreibt dann z. B. {TAGGED} in den Text.",
        f"Das Modell gibt dann Folgendes aus:\n{TAGGED}",
        f"Aquí tienes un ejemplo de llamada:\n{TAGGED}",
        f"El modelo emite lo siguiente:\n{TAGGED}",
        f"Ecco un esempio di chiamata:\n{TAGGED}",
        f"Вот пример вызова:\n{TAGGED}",
        f"Например, модель пишет так:\n{TAGGED}",
        f"例如，模型会输出：\n{TAGGED}",
        f"模型会生成如下内容:\n{TAGGED}",
        f"例えば、モデルは次のように出力します:\n{TAGGED}",
        f"예를 들어 모델은 다음과 같이 출력합니다:\n{TAGGED}",
        f"The log shows:\n\n    {TAGGED}\n\nso the server did not parse the call.",
        f"Your log file contains this line:\n{TAGGED}",
        f"The raw completion was:\n{TAGGED}",
        f"In the Hermes format a call is written as:\n{TAGGED}",
        f"An OpenAI response holds a call so:\n\n```json\n{JSON}\n```\n\nIt is read at once.",
        f"Calls are represented as:\n{TAGGED}",
        f"The expected output is:\n{TAGGED}",
        f'text = """{TAGGED}\n{JSON}\n"""\n',
        f"> {TAGGED}",
        f"| Hermes | {TAGGED} |",
        f"Use {TAGGED} when you need a book.",
        "The tags <tool_call> and </tool_call> stand around a call of find_book.",
        "Use the <tool_call> tag.",
        "<tool_call></tool_call>",
        "<tool_call>find a book</tool_call>",
        "<tool_call>{}</tool_call>",
        '<tool_call>{"arguments": {}}</tool_call>',
        "<function_calls></function_calls>",
        "<|tool_call_start|>[]<|tool_call_end|>",
        "[TOOL_CALLS]",
        "[TOOL_CALLS][]",
        "<tool_call",
        "<function=find_book",
        "<function=find_book>",
        "The tag <function=find_book> opens it.",
        "<function=find_book\n<b",
        '<function name="find_book"> opens a function',
        '<invoke name="find_book">',
        "<|python_tag|>import os\nprint(os.name)",
        "<|channel|>analysis<|message|>I could use functions.find_book.<|end|>",
        "<|channel|>final<|message|>The book is find_book.<|return|>",
        "Content with <｜tool▁calls▁",
        "<｜tool▁output▁begin｜>find_book<｜tool▁output▁end｜>",
    ],
)
def test_markers_that_are_only_spoken_of(text: str) -> None:
    assert rescue(text, TOOLS).calls == ()
    assert rescue(text, TOOLS).content == text


OPEN = {"type": "object", "properties": {"title": {"type": "string"}}}
NEEDS = {**OPEN, "required": ["title"]}
DEFINED = [
    {"type": "function", "function": {"name": "find_book", "parameters": OPEN}},
    {"type": "function", "function": {"name": "find_book", "parameters": NEEDS}},
    {"type": "function", "function": {"name": "find_book", "description": "By its title."}},
    {"name": "find_book", "parameters": NEEDS},
    {"name": "find_book", "parameters": {"type": "object", "properties": {}}},
]


@pytest.mark.parametrize("defined", DEFINED, ids=json.dumps)
@pytest.mark.parametrize(
    "around", ["{}", "[{}]", "These are my tools:\n{}", "```json\n{}\n```", "<tools>\n{}\n</tools>"]
)
def test_what_a_tool_is_declared_as_calls_none(defined: object, around: str) -> None:
    text = around.replace("{}", json.dumps(defined))
    assert rescue(text, TOOLS) == Rescued((), text)


def test_a_tool_that_takes_a_schema_is_given_one() -> None:
    tools = {"make_form": OPEN | {"properties": {"type": {}, "properties": {"type": "object"}}}}
    call = json.dumps({"name": "make_form", "arguments": NEEDS})
    assert [json.loads(found.arguments) for found in rescue(call, tools).calls] == [NEEDS]


@pytest.mark.parametrize(
    "text",
    [
        f"Here is the JSON you asked for:\n```json\n{JSON}\n```",
        f"The request body:\n```json\n{JSON}\n```",
        f"## find_book\n\n**Request**\n\n```json\n{JSON}\n```\n\n**Response**\n\nA book.",
        f"Here are the payloads you asked for:\n\n```json\n{JSON}\n```\n\n```json\n{JSON}\n```",
        f"The two request bodies:\n```json\n{JSON}\n```\nand\n```json\n{JSON}\n```\n",
        f"The JSON would be:\n\n{JSON}\n\n{JSON}",
        f"Shall I run this?\n\n```json\n{JSON}\n```",
        f"Once you confirm, I'll run:\n{JSON}",
        f"```json\n{JSON}\n```\n\nWould you like me to run this?",
        f"{JSON}\n\nShall I proceed?",
        f"{JSON}\n\nIs that okay?",
        f"I'd look this up, if that's okay:\n{JSON}",
        f"I would run this if it's fine with you:\n{JSON}",
        f"{JSON}\n\nPlease confirm before I run it.",
        f"{JSON}\n\nPlease confirm.",
        f"{JSON}\n\nProceed? (y/n)",
        f"{JSON}\n\nJust say yes and I'll run it.",
        f"{JSON}\n\nSoll ich das ausführen?",
        f"{JSON}\n\nVoulez-vous que je l'exécute ?",
        f"{JSON}\n\n¿Quieres que lo ejecute?",
        f"{JSON}\n\nVuoi che lo esegua?",
        f"{JSON}\n\nQuer que eu execute isso?",
        f"{JSON}\n\n要我执行吗？",
        f"{JSON}\n\n実行してもよろしいですか？",
        f"{JSON}\n\nВыполнить?",
        f"{JSON}\n\n실행할까요?",
        f"With your permission I would run:\n{JSON}",
        f"Wenn du zustimmst, führe ich Folgendes aus:\n{JSON}",
        f"Si vous confirmez, j'exécuterai :\n{JSON}",
        f"如果你同意，我将执行：\n{JSON}",
        f"Hier ist das gewünschte Objekt:\n{JSON}",
        f"以下のJSONを送信してください:\n\n{JSON}",
        f"```json\n{JSON}\n```\nThis looks the book up.",
        f"```json\n{JSON}\n{{}}\n```",
        f"def books():\n    return [{PYTHON}]",
        f"books = [{PYTHON}]",
        f"You can write [{PYTHON}] in the config.",
        f"The format looks like [{PYTHON}]",
        f"It is as good as [{PYTHON}]",
        f"for book in [{PYTHON}]",
        f"for example: [{PYTHON}]",
        f"```python\n{PYTHON}\n```",
        f"```python\n[{PYTHON}]\n```",
        f"Here is an example of the format:\n{JSON}",
        f"You could send {JSON} to the server.",
        f"payload = {JSON}",
        f"    return {JSON}",
        f'"{JSON}"',
        f"`{JSON}`",
        f"call({JSON})",
        f'{{"plan": [{JSON}]}}',
        f'{{"first": {JSON}, "done": false}}',
        f"[1, {JSON}]",
        '{"name": "find_book", "price": 12}',
        '{"name": "find_book"}',
        '{"name": "Momo", "arguments": {}}',
        '{"answer": {"name": "find_book", "arguments": {}}}',
        '{"title": "Momo", "year": 1973}',
        '{"arguments": {"title": "Momo"}}',
    ],
)
def test_json_that_is_data(text: str) -> None:
    assert rescue(text, TOOLS) == Rescued((), text)


@pytest.mark.parametrize(
    "text",
    [
        PYTHON,
        f"I would use {PYTHON} here.",
        f"[{PYTHON}](https://example.org)",
        "[find_book](https://example.org)",
        "[find_book(title=name)]",
        "[find_book(title=open('x'))]",
        "```tool_code\nfor i in range(3):\n    find_book(title='a')\n```",
        "tool_code = 5",
        "Action: I will find the book.\nAction Input: none",
        "The next Action: find_book\nAction Input: {}",
        "Action: find_book for me",
        ">>> find_book\n{}",
        "[Calling tool: find_book]",
        "functools[0]",
        "⏺ find_book: Momo",
    ],
)
def test_python_and_prose(text: str) -> None:
    assert rescue(text, TOOLS) == Rescued((), text)


@pytest.mark.parametrize(
    "before",
    [
        "It looks like you need a book. ",
        "I'll use the tool that can return books.\n",
        "I'll check a few titles, for example Momo.\n",
        'The column is called "id.',
        "Don't worry about the `shelf",
        "I will now read the example file.\n\n",
        "Let me format the list: ",
        "Let me see what it printed:\n",
        "Let me look at the output format:\n",
        "Now I’ll update the template:\n",
        "I have to check that the syntax is right.\n",
        "### Step 2: Check the template\n\n",
        "The previous call failed. Trying again:\n",
        "Let me check how the page looks.\n",
        "Do you want a book?\n",
        "Let me see how the test calls look:\n",
        "We have to see how the test calls look:\n",
        "We can use the examples of calls:\n",
        "Let me check the examples of tool calls in the docs:\n",
        "I'll check what the user wrote:\n",
        "We need to know what the request was:\n",
        "I've made a mistake in the call:\n",
        "## Step 1: Check the output format\n",
        "# Verify the syntax\n",
        "Es sieht so aus, als fehle ein Titel. ",
        "Es sieht so aus, als fehle das Buch; ich suche es:\n",
        "예.\n",
        "我需要查看数据格式如下：\n",
        "Let me see what the log shows:\n",
        "The log shows an error. Let me look it up:\n",
        "Das Modell gibt einen Fehler, ich sehe nach:\n",
        "Je vais regarder un exemple :\n",
        "Ich prüfe das Beispiel-Regal:\n",
        "Voy a revisar los ejemplos:\n",
        "让我看看模型的输出:\n",
        "模型返回了错误，我来查一下：\n",
        "Let me see what the config looks like:\n",
        "First, I want to see what the code looks like:\n",
        "Let me look at an example:\n",
        "I'll run the failing example:\n",
        "Let me check the README for usage examples:\n",
        "I'll look at how the model outputs its text:\n",
        "Now check what the parser sees:\n",
        "To understand what the client gets:\n",
        "The function calls are encoded in books.txt, so I read:\n",
        "Calls are written to the log in books.txt:\n",
        "Voyons à quoi ressemble ce fichier :\n",
        "Je vérifie à quoi ressemble le fichier :\n",
        "Ich prüfe, ob das Modell richtig schreibt:\n",
    ],
)
def test_prose_that_is_no_example_hides_no_call(before: str) -> None:
    found = rescue(before + TAGGED, TOOLS)
    assert [call.name for call in found.calls] == ["find_book"]
    assert found.content == before


@pytest.mark.parametrize("call", [TAGGED, JSON, f"```json\n{JSON}\n```"])
@pytest.mark.parametrize(
    "around",
    [
        "I'll check both.\n{}\nand the other one:\n{}",
        "Thank you for your approval.\n\n{}\n\n{}",
        "Paris:\n{}\nand London:\n{}",
        "Now I’ll read the config file:\n{}\n\n{}\n",
        "It wrote the wrong one. Let me fix that:\n\n{}\n\nThen the other:\n\n{}",
        "好的，我来读取 config 文件：\n\n{}\n\n{}",
        "Je vais lire le fichier config :\n\n{}\n\n{}\n\nWould you like me to check more?",
        "If you want to know more, I'll look it up:\n\n{}\n\n{}",
        "What should I read first?\n\n{}\n\n{}",
        "Was soll ich zuerst lesen?\n\n{}\n\n{}",
        "Que dois-je lire d'abord ?\n\n{}\n\n{}",
        "文件是否存在？\n\n{}\n\n{}",
        "First both:\n\n{}\n\n{}\n\nPlease confirm the result once it is there.",
        "Let me check if it's okay:\n\n{}\n\n{}",
        "I have to see if that is fine:\n\n{}\n\n{}",
        "The command was not executed, so I try again:\n\n{}\n\n{}",
        "Response:\n\n{}\n\n{}",
        "Ich räume zuerst auf:\n\n{}\n\n{}\n\nIch melde mich mit dem Ergebnis.",
        "先清理：\n\n{}\n\n{}\n\n我会告诉你结果。",
        "Read the files:\n\n{}\n\n{}",
        "We need to look at the config file first:\n\n{}\n\n{}",
        "I'll check both:\n\n{}\n\n{}\n\nLet me know if you'd like me to do this differently.",
    ],
)
def test_calls_that_are_meant_may_have_prose_around(around: str, call: str) -> None:
    found = rescue(around.replace("{}", call), TOOLS)
    assert [one.name for one in found.calls] == ["find_book"] * 2


def test_a_marked_call_behind_the_json_that_was_asked_for_is_meant() -> None:
    before = f"Here is the JSON for the call:\n\n```json\n{JSON}\n```\n\n"
    found = rescue(before + TAGGED, TOOLS)
    assert [one.name for one in found.calls] == ["find_book"]
    assert found.content == before
    data = f"{before}```json\n{JSON}\n```\n"
    assert rescue(data, TOOLS) == Rescued((), data)
