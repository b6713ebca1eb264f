"""Settings of ours in files that belong to somebody else."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest
import yaml

from mlx_stack_proxy.operator.agents.client_file import Unfit, put_in, take_back, text_of

CODEX = {
    "model": "auto",
    "model_context_window": 32768,
    "model_providers": {"mlx-stack": {"name": "mlx-stack", "base_url": "http://127.0.0.1:4100/v1"}},
}
CODEX_FILE = """\
# My own settings.
model = "gpt-5.5"   # the dear one
approval_policy = "never"

[model_providers.other]
name = "other"
model = "theirs"

[tui]
animations = false
"""
CLAUDE = {"env": {"ANTHROPIC_BASE_URL": "http://127.0.0.1:4100", "ANTHROPIC_MODEL": "auto"}}
AIDER = {"model": "openai/auto", "openai-api-base": "http://127.0.0.1:4100/v1"}
AIDER_FILE = "# Mine.\nmodel: sonnet\ndark-mode: true   # always\n"


def test_toml_keeps_its_comments_and_its_other_settings() -> None:
    made = put_in(CODEX_FILE, CODEX, "toml")
    found = tomllib.loads(made)
    assert found["model"] == "auto"
    assert found["model_context_window"] == 32768
    assert found["approval_policy"] == "never"
    assert found["model_providers"]["other"] == {"name": "other", "model": "theirs"}
    assert found["model_providers"]["mlx-stack"]["base_url"] == "http://127.0.0.1:4100/v1"
    assert "# My own settings." in made and "# the dear one" in made


@pytest.mark.parametrize(
    ("text", "settings", "form"),
    [
        (CODEX_FILE, CODEX, "toml"),
        ("", CODEX, "toml"),
        (AIDER_FILE, AIDER, "yaml"),
        ("", AIDER, "yaml"),
        ("", CLAUDE, "json"),
        ('{\n    "permissions": {\n        "allow": ["Bash(ls:*)"]\n    }\n}\n', CLAUDE, "json"),
        (
            '{\n  "env": {\n    "ANTHROPIC_MODEL": "opus",\n    "MINE": "é"\n  }\n}\n',
            CLAUDE,
            "json",
        ),
        ('{\n  "env": {}\n}\n', CLAUDE, "json"),
        ('{\n  "env": null\n}\n', CLAUDE, "json"),
    ],
)
def test_what_was_put_in_is_taken_back(text: str, settings: Any, form: Any) -> None:
    made = put_in(text, settings, form)
    assert put_in(made, settings, form) == made
    again = take_back(made, text, settings, form)
    if form == "json" and text:
        assert json.loads(again) == json.loads(text)
    else:
        assert again == text


def test_what_was_changed_since_stays() -> None:
    before = '{"env": {"ANTHROPIC_MODEL": "opus"}}'
    now = json.loads(put_in(before, CLAUDE, "json"))
    now["permissions"] = {"allow": ["Read"]}
    now["env"]["MINE"] = "1"
    again = json.loads(take_back(json.dumps(now), before, CLAUDE, "json"))
    assert again == {
        "env": {"ANTHROPIC_MODEL": "opus", "MINE": "1"},
        "permissions": {"allow": ["Read"]},
    }
    made = put_in(CODEX_FILE, CODEX, "toml") + "\n[more]\nx = 1\n"
    assert take_back(made, CODEX_FILE, CODEX, "toml") == CODEX_FILE + "\n[more]\nx = 1\n"


def test_a_second_time_other_values_take_the_place_of_the_first() -> None:
    first = put_in(CODEX_FILE, CODEX, "toml")
    second = put_in(first, {**CODEX, "model_context_window": 8192}, "toml")
    assert tomllib.loads(second)["model_context_window"] == 8192
    assert take_back(second, CODEX_FILE, CODEX, "toml") == CODEX_FILE


@pytest.mark.parametrize(
    ("text", "settings", "form", "why"),
    [
        ('{\n  // mine\n  "env": {}\n}', CLAUDE, "json", "can't be read as JSON"),
        ("[]", CLAUDE, "json", "no settings by name"),
        ("model = ", CODEX, "toml", "can't be read as TOML"),
        ('[model_providers.mlx-stack]\nname = "mine"\n', CODEX, "toml", "of its own"),
        ('model = """\na\n"""\n', CODEX, "toml", "of its own"),
        ("models:\n- name: mine\n", {"models": [{"name": "auto"}]}, "yaml", "of its own"),
        ("a: [", AIDER, "yaml", "can't be read as YAML"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(text: str, settings: Any, form: Any, why: str) -> None:
    with pytest.raises(Unfit, match=why):
        put_in(text, settings, form)


@pytest.mark.parametrize("form", ["json", "toml", "yaml"])
def test_the_printed_text_is_read_as_the_settings(form: Any) -> None:
    readers = {"json": json.loads, "toml": tomllib.loads, "yaml": yaml.safe_load}
    assert readers[form](text_of(CODEX, form)) == CODEX
