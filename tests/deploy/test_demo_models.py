"""The model folders are whole and small, and the chat template takes what agents send."""

import json
from pathlib import Path

import pytest
from demo_tiers import chat_template, tools

LOCAL = Path(__file__).parents[2] / "deploy" / "local"
TIERS = ["standard", "fast"]
CALL = {"id": "c1", "type": "function", "function": {"name": "get_order", "arguments": None}}


def call(arguments):
    return {**CALL, "function": {"name": "get_order", "arguments": arguments}}


@pytest.mark.parametrize("tier", TIERS)
class TestFolders:
    def test_is_at_most_four_megabytes(self, tier):
        size = sum(file.stat().st_size for file in (LOCAL / "models" / tier).rglob("*"))
        assert 100_000 < size <= 4 * 1024 * 1024

    def test_config_fits_the_weights(self, tier):
        folder = LOCAL / "models" / tier
        config = json.loads((folder / "config.json").read_text())
        assert config["model_type"] == "llama" and config["tie_word_embeddings"]
        raw = (folder / "model.safetensors").read_bytes()
        header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
        embedding = header["model.embed_tokens.weight"]
        assert embedding["dtype"] == "F16"
        assert embedding["shape"] == [config["vocab_size"], config["hidden_size"]]
        layers = {name.split(".")[2] for name in header if name.startswith("model.layers.")}
        assert len(layers) == config["num_hidden_layers"]

    def test_tokenizer_and_template_are_the_ones_of_this_folder(self, tier):
        folder = LOCAL / "models" / tier
        tokenizer = json.loads((folder / "tokenizer.json").read_text())
        config = json.loads((folder / "config.json").read_text())
        ids = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
        assert ids["<|im_end|>"] == config["eos_token_id"]
        assert (folder / "chat_template.jinja").read_text() == chat_template.SOURCE
        settings = json.loads((folder / "tokenizer_config.json").read_text())
        assert settings["chat_template"] == chat_template.SOURCE

    def test_has_a_card_with_figures(self, tier):
        card = (LOCAL / "models" / tier / "README.md").read_text()
        for word in ("train.py", "evaluate.py", "seed", "unseen", "%"):
            assert word in card


def test_template_lets_mlx_lm_find_its_tool_parser():
    assert "<tool_call>" in chat_template.SOURCE and "tool_call.name" in chat_template.SOURCE


def test_tools_are_rendered_with_types_and_options():
    said = chat_template.render([{"role": "user", "content": "Hi"}], tools.TOOLS)
    assert "get_order(order_id)\n" in said
    assert "(city, unit?: celsius|fahrenheit, days?: integer)" in said
    assert "tags?: string[])" in said
    assert said.startswith("<|im_start|>system\n<tools>\n")
    assert said.endswith("<|im_start|>assistant\n")


@pytest.mark.parametrize(
    "arguments", [{"order_id": "A<&'é"}, '{"order_id": "A<&\'é"}'], ids=["object", "string"]
)
def test_calls_in_the_history_are_json(arguments):
    messages = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": None, "tool_calls": [call(arguments)]},
        {"role": "tool", "tool_call_id": "c1", "content": "{}"},
    ]
    said = chat_template.render(messages, tools.TOOLS)
    inner = said.split("<tool_call>\n")[1].split("\n</tool_call>")[0]
    assert json.loads(inner) == {"name": "get_order", "arguments": {"order_id": "A<&'é"}}
    assert "<tool_response>{}</tool_response>" in said


@pytest.mark.parametrize(
    ("messages", "wanted"),
    [
        ([{"role": "user", "content": None}], "user\n<|im_end|>"),
        ([{"role": "user"}], "user\n<|im_end|>"),
        ([{"role": "user", "content": [{"type": "text", "text": t} for t in "ab"]}],
         "user\nab<|im_end|>"),
        ([{"role": "user", "content": [{"type": "image_url"}, "c"]}], "user\nc<|im_end|>"),
        ([{"role": "system", "content": "S1"}, {"role": "system", "content": "S2"},
          {"role": "user", "content": "x"}], "system\nS2<|im_end|>"),
        ([{"role": "user", "content": "x"}, {"role": "system", "content": "late"}],
         "system\nlate<"),
        ([{"role": "developer", "content": "D"}, {"role": "user", "content": "x"}],
         "system\nD\n<tools>"),
        ([{"role": "user", "content": "x"}, {"role": "user", "content": "y"}],
         "user\nx<|im_end|>\n<|im_start|>user\ny<|im_end|>"),
        ([{"role": "function", "name": "f", "content": "r"}], "<tool_response>r</tool_response>"),
        ([{"role": "assistant", "content": "Let me see.", "tool_calls": [call({"a": 1})]}],
         'assistant\nLet me see.\n<tool_call>\n{"name": "get_order", "arguments": {"a": 1}}'),
        ([{"role": "assistant", "content": "", "tool_calls": [call({}), call("")]}],
         '"arguments": {}}\n</tool_call>\n<tool_call>'),
        ([{"role": "assistant", "content": None, "tool_calls": []}], "assistant\n<|im_end|>"),
        ([{"role": "assistant", "content": None, "tool_calls": None}], "assistant\n<|im_end|>"),
        ([{"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}}], '"name": "f"'),
        ([{"role": "someone", "content": "z"}], "user\nz<|im_end|>"),
    ],
)  # fmt: skip
def test_odd_messages_are_rendered(messages, wanted):
    assert wanted in chat_template.render(messages, tools.TOOLS)
    chat_template.render(messages, None)


@pytest.mark.parametrize(
    "parameters",
    [None, {}, {"properties": None}, {"properties": {"a": True, "b": {"type": ["string", "null"]}}},
     {"properties": {"a": {"type": "array"}, "b": {"type": "array", "items": True}, "c": {}}},
     {"properties": {"items": {"type": "string"}, "keys": {"enum": [1, None]}}, "required": None}],
)  # fmt: skip
def test_odd_schemas_are_rendered(parameters):
    tool = {"type": "function", "function": {"name": "odd", "parameters": parameters}}
    assert "odd(" in chat_template.render([{"role": "user", "content": "x"}], [tool])


def test_two_system_messages_offer_the_tools_once():
    messages = [{"role": "system", "content": "S1"}, {"role": "system", "content": "S2"}]
    assert chat_template.render(messages, tools.TOOLS).count("<tools>") == 1
