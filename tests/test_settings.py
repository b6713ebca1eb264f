"""Settings from file and environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mlx_stack_proxy.settings import DEFAULT_TIERS, Settings, TierSettings
from mlx_stack_proxy.settings_source import SettingsError, from_mapping, load, read
from tests.settings_problems import (
    at,
)

Json = dict[str, Any]
pytestmark = pytest.mark.usefixtures("empty_folder")


def config(folder: Path, text: str, name: str = "config.yaml") -> str:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return str(file)


# Where settings come from


def test_without_file_and_environment_the_defaults() -> None:
    assert load(None, {}) == from_mapping({})
    assert list(load(None, {}).tiers) == ["fast", "standard", "longctx", "premium"]


def test_the_file_that_is_named_here_there_or_stands_here(empty_folder: Path) -> None:
    here = config(empty_folder, "server: {port: 1}")
    named = config(empty_folder, "server: {port: 2}", "named.yaml")
    given = config(empty_folder, "server: {port: 3}", "given.yaml")
    variable = {"MLX_STACK_CONFIG": named}
    assert load(None, {}).server.port == 1
    assert load(None, variable).server.port == 2
    assert load(given, variable).server.port == 3
    assert load(here, {}).server.port == 1


def test_the_environment_is_stronger_than_the_file(empty_folder: Path) -> None:
    config(empty_folder, "server: {port: 1, host: localhost}")
    server = load(None, {"MLX_STACK_SERVER__PORT": "2"}).server
    assert (server.port, server.host) == (2, "localhost")


def test_a_clients_key_is_no_setting() -> None:
    assert load(environ={"MLX_STACK_KEY": "k-1"}) == load(environ={})


def test_a_variable_may_be_in_small_letters_or_hold_a_section() -> None:
    """Each key as a variable of its own: tests/docs/test_settings_page.py."""
    assert load(None, {"mlx_stack_server__allow_bypass": "true"}).server.allow_bypass is True
    assert load(None, {"MLX_STACK_SERVER": '{"port": 7}'}).server.port == 7


def test_variables_of_others_are_left_alone() -> None:
    assert load(None, {"MLX_STACK": "x", "PORT": "7", "MY_MLX_STACK_SERVER": "x"}) == load(None, {})


def test_a_tier_of_the_file_and_one_key_of_it_in_the_environment(empty_folder: Path) -> None:
    config(empty_folder, "tiers: {small: {model: qwen, max_concurrency: 2}, big: {}}")
    found = load(None, {"MLX_STACK_TIERS__SMALL__IDLE_TIMEOUT": "7"})
    assert found.tiers["small"] == TierSettings(model="qwen", max_concurrency=2, idle_timeout=7)
    assert found.reliability.escalation.chain == ("small", "big")


def test_a_key_of_a_default_tier_in_the_environment() -> None:
    found = load(None, {"MLX_STACK_TIERS__FAST__MODEL": "qwen"})
    assert found.tiers["fast"] == TierSettings(model="qwen")
    assert list(found.tiers) == list(DEFAULT_TIERS)


@pytest.mark.parametrize("word", ["true", "True", "on"])
def test_a_tiers_switch_in_the_environment_is_a_switch(word: str) -> None:
    found = load(
        None, {"MLX_STACK_TIERS__FAST__TOOLS": word, "MLX_STACK_TIERS__FAST__IMAGES": "no"}
    )
    assert (found.tiers["fast"].tools, found.tiers["fast"].images) == (True, False)


# Tiers


def test_the_chain_follows_the_given_tiers() -> None:
    found = from_mapping({"tiers": {"b": None, "a": {"model": "x"}}})
    assert found.reliability.escalation.chain == ("b", "a")
    assert (found.tiers["b"].model, found.tiers["a"].model) == ("b", "x")
    chosen = from_mapping(
        {"tiers": {"b": {}, "a": {}}, **at("reliability.escalation.chain", ["a"])}
    )
    assert chosen.reliability.escalation.chain == ("a",)


def test_a_given_tier_of_a_known_name_keeps_its_defaults() -> None:
    found = from_mapping({"tiers": {"premium": {}, "longctx": {"model": "x"}}})
    assert found.tiers["premium"] == TierSettings(model="premium", local=False)
    assert found.tiers["longctx"] == TierSettings(model="x", context_window=131_072)


# YAML


@pytest.mark.parametrize("word", ["off", "no", '"off"'])
def test_yamls_off_is_the_word_where_the_word_is_meant(word: str, empty_folder: Path) -> None:
    text = f"tool_validation: {{repair: {word}}}, memory_pressure: {{source: {word}}}"
    config(empty_folder, f"reliability: {{{text}}}")
    found = load(None, {}).reliability
    assert (found.tool_validation.repair, found.memory_pressure.source) == ("off", "off")


@pytest.mark.parametrize("word", ["off", "on", "true"])
def test_and_a_switch_where_a_switch_is_meant(word: str, empty_folder: Path) -> None:
    config(
        empty_folder,
        f"reliability: {{escalation: {{cloud: {word}}}}}\ntiers: {{a: {{tools: {word}}}}}",
    )
    found = load(None, {})
    assert found.reliability.escalation.cloud is (word != "off")
    assert found.tiers["a"].tools is (word != "off")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "server:\n---\ntiers:",
            r"YAML: expected a single document .*, but found another .*line 2",
        ),
        ("server: {port: 1", r"YAML: expected ',' or '}'.* \(line 1, column 17\)"),
        ("server:\n\tport: 1", "is not valid YAML"),
        ("server: !!int x", "is not valid YAML: ValueError: "),
        ("server: {port: 2026-13-01}", "is not valid YAML: ValueError: month must be"),
        ("[1, 2]", "must be a mapping of sections"),
        ("just words", "must be a mapping of sections"),
    ],
)
def test_a_file_that_is_none(text: str, said: str, empty_folder: Path) -> None:
    file = config(empty_folder, text)
    with pytest.raises(SettingsError, match=said) as caught:
        load(file, {})
    assert str(caught.value).startswith(f"{file}: ")


def test_a_file_that_is_not_there_or_not_text(empty_folder: Path) -> None:
    (empty_folder / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    for name, said in (
        ("nowhere.yaml", "can't be read: No such file"),
        (".", "can't be read: Is a directory"),
        ("binary.yaml", "is not valid YAML"),
    ):
        with pytest.raises(SettingsError, match=said):
            load(name, {})


@pytest.mark.parametrize("text", ["", "# nothing\n", "tiers:\n", "server:\ntiers:\n"])
def test_an_empty_file_is_the_defaults(text: str, empty_folder: Path) -> None:
    assert load(config(empty_folder, text), {}) == from_mapping({})


def test_an_empty_name_of_a_file_is_none(empty_folder: Path) -> None:
    assert load(environ={"MLX_STACK_CONFIG": ""}) == load(environ={})


def test_keys_of_rules_that_are_gone_are_accepted_and_said(empty_folder: Path) -> None:
    text = """
reliability:
  loop_detection:
    compare: numbers
    max_period: 5
    similar_replies: {min_chars: 9}
    duplicate_threshold: 4
    tool_calls:
      same_error_warn: 5
      overrides: {bash: {identical_warn: 200, identical_hard: 9}}
"""
    file = config(empty_folder, text)
    loops = "reliability.loop_detection"
    sources = read(file, {"MLX_STACK_RELIABILITY__ESCALATION__FORESEE_ABOVE": "0.5"})
    assert sources.retired() == [
        f"{loops}.compare",
        f"{loops}.max_period",
        f"{loops}.similar_replies.min_chars",
        f"{loops}.tool_calls.same_error_warn",
        f"{loops}.tool_calls.overrides.bash.identical_warn",
        "reliability.escalation.foresee_above",
    ]
    found = sources.settings().reliability.loop_detection
    assert found.duplicate_threshold == 4
    assert found.tool_calls.overrides["bash"].identical_hard == 9
    assert read(config(empty_folder, "server: {port: 1}"), {}).retired() == []


def test_a_key_that_yaml_reads_as_a_switch_is_a_word(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("observability: {notify: {on: [report], url: 'https://h/t'}}")
    assert load(str(file)).observability.notify.on == ("report",)


# The cloud as a tier


def with_cloud(tiers: dict[str, Any], **fallback: Any) -> Settings:
    escalation = {"cloud_fallback": {"model": "vendor/large", **fallback}}
    return from_mapping({"tiers": tiers, "reliability": {"escalation": escalation}})


@pytest.mark.specification(93)
def test_the_cloud_ends_a_chain_that_has_no_tier_there() -> None:
    found = with_cloud({"fast": {}, "standard": {}})
    assert found.reliability.escalation.chain == ("fast", "standard", "cloud_fallback")
    tier = found.tiers["cloud_fallback"]
    assert (tier.model, tier.local) == ("vendor/large", False)
    for tiers, more in (
        ({"fast": {}, "premium": {}}, {}),
        ({"fast": {}, "big": {"local": False}}, {}),
        ({"fast": {}, "big": {"local": "false"}}, {}),
        ({"fast": {}}, {"enabled": False}),
    ):
        assert "cloud_fallback" not in with_cloud(tiers, **more).tiers


@pytest.mark.specification(94)
def test_a_provider_has_an_address_or_is_given_one() -> None:
    fallback = with_cloud({"fast": {}}).reliability.escalation.cloud_fallback
    assert fallback is not None and fallback.url == "https://openrouter.ai/api/v1"
    with pytest.raises(SettingsError, match="provider 'openai' needs its base_url"):
        with_cloud({"fast": {}}, provider="openai", api_key_env="OPENAI_API_KEY")
    url = "https://api.openai.com/v1"
    given = with_cloud({"fast": {}}, provider="openai", base_url=url).reliability.escalation
    assert given.cloud_fallback is not None and given.cloud_fallback.url == url
