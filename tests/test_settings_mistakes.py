"""What is said of mistakes in the file and the environment: path, what is allowed, no secret."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from mlx_stack_proxy.settings import ServerSettings, is_loopback
from mlx_stack_proxy.settings_source import SettingsError, from_mapping, load
from tests.settings_problems import (
    Json,
    at,
    environment_problems,
    problems,
)

pytestmark = pytest.mark.usefixtures("empty_folder")


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("sever", "did you mean `server`?"),
        ("server.prot", "did you mean `port`?"),
        ("reliability.loop_detection.generation.min_lap", "did you mean `min_laps`?"),
        ("tiers.fast.modle", "did you mean `model`?"),
        ("tiers.tools.modle", "did you mean `model`?"),
        ("reliability.token_budget.per_tier.fast.per_hours", "did you mean `per_hour`?"),
        (
            "reliability.loop_detection.tool_calls.overrides.bash.identical_hrad",
            "did you mean `identical_hard`?",
        ),
        ("stream.zzz", "known: mode, keepalive_seconds, "),
        ("reliability.max_output_tokens", "known: loop_detection, "),
        ("_env_file", "known: server, "),
        ("self", "known: server, "),
    ],
)
def test_an_unknown_key_names_its_path_and_the_nearest(path: str, said: str) -> None:
    start = f"{path}: unknown key `{path.rpartition('.')[2]}`; {said}"
    assert any(problem.startswith(start) for problem in problems(at(path, 1)))


def test_keys_that_are_no_strings() -> None:
    assert problems({1: 2}) == [
        "1: unknown key `1`; known: server, upstream, stream, tiers, reliability, state, "
        "observability"
    ]
    assert problems({"server": {1: 2}})[0].startswith("server.1: ")
    assert problems({"tiers": {1: {}}})[0] == "tiers.1: the name should be a valid string"


@pytest.mark.parametrize(
    ("path", "value", "read"),
    [
        ("reliability.escalation.chain", [1], ".0: 1"),
        ("reliability.escalation.chain", [True], ".0: true"),
        ("reliability.escalation.aliases.x", 1.5, ": 1.5"),
        ("tiers.fast.model", 7, ": 7"),
    ],
)
def test_a_word_that_yaml_reads_as_something_else(path: str, value: object, read: str) -> None:
    """`tiers: {1: , on: }` names tiers, because keys are always words; `chain: [1, on]` doesn't."""
    place, _, said = read.partition(": ")
    sentence = f"{path}{place}: must be text: put it in quotes, because it reads as {said}"
    assert problems(at(path, value)) == [sentence]


URL = ": must be a URL such as http:"


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("server.port", "x", ": input should be a valid integer"),
        ("server.port", 65_536, ": input should be less than or equal to 65535"),
        ("server", [], ": must be a mapping of keys"),
        ("server.api_keys", 7, ": must be a list"),
        ("tiers", {}, ": "),
        ("tiers", [], ": must be a mapping of keys"),
        ("tiers.fast", "qwen", ": must be a mapping of keys"),
        ("tiers.fast.tools", "x", ": input should be 'auto', True or False"),
        ("tiers.fast.max_concurrency", 0, ": input should be greater"),
        ("tiers.fast.max_concurrency", True, ": must be a number, not"),
        ("tiers.fast.idle_timeout", float("nan"), ": input should be a f"),
        ("tiers.fast.total_timeout", float("inf"), ": input should be a "),
        ("upstream.base_url", "localhost:4000", URL),
        ("upstream.base_url", "http://[::1", URL),
        ("upstream.base_url", "http://h:abc", URL),
        ("upstream.base_url", "http://h:99999", URL),
        ("observability.notify.url", "http://[::1", URL),
        ("observability.notify.url", "http://h:abc/x", URL),
        ("observability.notify.url", "http://h:99999/x", URL),
        ("observability.notify.url", "http://:80/", URL),
        ("tiers.fast.health_url", "http://[::1", URL),
        ("tiers.fast.health_url", "http://h:99999/health", URL),
        ("tiers.fast.health_url", "h/health", URL),
        ("upstream.base_url", "http://a b", URL),
        ("upstream.base_url", f"http://{'h' * 64}", URL),
        ("state.redis_url", "localhost", ": must be a URL that begins with redis:"),
        ("stream.mode", "life", ": input should be 'live' or 'buffered', not 'life'; did you mean"),
        ("observability.log_level", "warn", ": input should be 'debug', "),
        ("reliability.escalation.escalate_on", ["timeot"], ".0: input should be "),
        ("reliability.memory_pressure.source", "ftp://x", ": must"),
        ("reliability.escalation.cloud_fallback", {}, ".model: is required"),
        ("reliability.token_budget.warn_at", 1.1, ": input should be less than or equal"),
    ],
)
def test_a_bad_value_names_its_path_and_what_is_allowed(path: str, value: Any, said: str) -> None:
    assert any(problem.startswith(path + said) for problem in problems(at(path, value)))


def test_all_mistakes_are_said_at_once() -> None:
    found = problems({"sever": 1, "server": {"prot": 1, "port": "x"}, "stream": {"mode": "x"}})
    places = {problem.split(":")[0] for problem in found}
    assert places == {"sever", "server.prot", "server.port", "stream.mode"}


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("escalation.chain", ["fats"], "unknown tier `fats`; did you mean `fast`?"),
        ("escalation.chain", [], "needs at least one tier"),
        ("escalation.chain", ["fast", "fast"], "names a tier twice"),
        ("escalation.aliases", {"gpt": "zzz"}, "unknown tier `zzz`; known: fast, standard, "),
        ("token_budget.per_tier", {"fats": {}}, "unknown tier `fats`; did you mean `fast`?"),
        (
            "token_budget",
            {"policy": "escalate", "downgrade_tier": "fats"},
            "unknown tier `fats`; did you mean `fast`?",
        ),
        (
            "loop_detection.judge",
            {"enabled": True, "tier": "fats"},
            "unknown tier `fats`; did you mean `fast`?",
        ),
    ],
)
def test_names_of_tiers_are_checked(path: str, value: Any, said: str) -> None:
    (problem,) = problems(at(f"reliability.{path}", value))
    assert problem.startswith(f"reliability.{path}") and said in problem


def test_a_tier_that_is_named_but_not_used_is_not_asked_for() -> None:
    found = from_mapping({"tiers": {"only": {}}})  # downgrade_tier and judge.tier have defaults
    assert found.reliability.token_budget.downgrade_tier == "fast"


def test_auto_is_no_name_for_a_tier() -> None:
    assert "tiers.auto" in problems({"tiers": {"auto": {}}})[0]


@pytest.mark.parametrize("name", ["", "a b", "a/b", "-a", "ü", "x" * 65])
def test_names_that_no_tier_can_have(name: str) -> None:
    assert problems({"tiers": {name: {}}})[0].startswith(f"tiers.{name}: the name must begin with")


def test_a_number_in_a_file_names_a_tier(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("tiers: {fast: , 1: , on: }")
    assert load(str(file), {}).reliability.escalation.chain == ("fast", "1", "on")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "localhost", "::1"])
def test_any_key_is_let_in_on_loopback(host: str) -> None:
    assert is_loopback(host)
    from_mapping({"server": {"host": host, "api_keys": ["*"]}})


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "192.168.1.2", "example.org", "127.0.0.1.example.org", ""]
)
def test_and_nowhere_else(host: str) -> None:
    assert not is_loopback(host)
    (problem,) = problems({"server": {"host": host, "api_keys": ["k", "*"]}})
    assert problem.startswith('server.api_keys: "*" lets anyone in')
    from_mapping({"server": {"host": host, "api_keys": ["k"]}})


def test_an_unknown_section_names_the_variable() -> None:
    said = environment_problems(SEVER__PORT="1")
    assert said == (
        "environment variable MLX_STACK_SEVER__PORT: unknown section `sever`; "
        "did you mean `server`?"
    )


def test_an_unknown_key_in_the_environment_names_its_path(empty_folder: Path) -> None:
    assert environment_problems(SERVER__PROT="1").startswith("server.prot: unknown key `prot`")
    (empty_folder / "config.yaml").write_text("server: {port: 1}\n", "utf-8")
    with pytest.raises(SettingsError, match=r"^config.yaml and environment: server.prot: unknown"):
        load(None, {"MLX_STACK_SERVER__PROT": "1"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SERVER__API_KEYS", "sk-secret"),
        ("SERVER", "sk-secret"),
        ("RELIABILITY__ESCALATION__ALIASES", '{"sk-secret": '),
        ("RELIABILITY__TOKEN_BUDGET__PER_KEY", "sk-secret"),
        ("TIERS__FAST__PARAMS", "sk-secret"),
    ],
)
def test_what_is_no_json_names_the_variable_but_not_its_value(name: str, value: str) -> None:
    said = environment_problems(**{name: value})
    assert f"environment variable MLX_STACK_{name}: " in said or "tiers.fast.params" in said
    assert "JSON" in said
    assert "sk-secret" not in said


SECRET = "sk-secret-1234"


@pytest.mark.parametrize(
    "data",
    [
        at("server.api_keys", SECRET),
        at("server.api_keys", [[SECRET]]),
        at("server.api_keys", {SECRET: 1}),
        at("server.admin_key", [SECRET]),
        at("server.admin_key", {"a": SECRET}),
        at("reliability.token_budget.per_key", {SECRET: 5}),
        at("reliability.token_budget.per_key", {SECRET: {"per_hour": "x"}}),
        at("reliability.token_budget.per_key", {SECRET: {"per_hours": 5}}),
        at("reliability.token_budget.per_key", SECRET),
    ],
    ids=repr,
)
def test_no_message_holds_a_key(data: Json) -> None:
    with pytest.raises(SettingsError) as caught:
        from_mapping(data)
    assert SECRET not in str(caught.value)


@given(st.dictionaries(st.text("ABCDEFX_", max_size=12), st.text(max_size=8), max_size=3))
def test_no_environment_raises_anything_else(variables: dict[str, str]) -> None:
    named = {f"MLX_STACK_SERVER__{key}": value for key, value in variables.items()}
    try:
        load(None, named)
    except SettingsError as error:
        assert error.problems


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}])
def test_params_must_fit_into_json(value: Any) -> None:
    (said,) = problems({"tiers": {"fast": {"params": {"temperature": value}}}})
    assert said.startswith("tiers.fast.params: must be values that JSON can hold")


@pytest.mark.parametrize(
    "url", ["redis://h:99999", "redis://h:abc", "redis://[::1/0", "redis://h/0?socket_timeout=so"]
)
def test_an_address_of_redis_that_is_none_is_named_and_not_quoted(url: str) -> None:
    (said,) = problems({"state": {"backend": "redis", "redis_url": url}})
    assert said == "state.redis_url: must be a URL such as redis://127.0.0.1:6379/0"


@pytest.mark.parametrize("path", ["upstream.base_url", "state.redis_url"])
@pytest.mark.parametrize("url", ["htps://me:secret@h:1", "me:secret@h"])
def test_a_password_in_what_is_no_url_is_not_quoted(path: str, url: str) -> None:
    (said,) = problems(at(path, url))
    assert said.startswith(f"{path}: must be a URL") and "secret" not in said


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("server: {port: 1}\nupstream:\nserver: {host: h}\n", (3, 1)),
        (
            "reliability:\n token_budget:\n  per_key:\n   sk-one: {}\n   sk-one: {}\n",
            (5, 4),
        ),
    ],
)
def test_a_key_given_twice_stops_the_start(
    text: str, lines: tuple[int, int], tmp_path: Path
) -> None:
    """Else what stands under the first is dropped, and nobody is told."""
    file = tmp_path / "config.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(SettingsError) as caught:
        load(str(file), {})
    (said,) = caught.value.problems
    assert said == f"is not valid YAML: line {lines[0]} repeats a key of line {lines[1]}"


def test_a_key_beside_what_is_merged_in_is_given_once(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("tiers: {a: &a {local: false}, b: {<<: *a, local: true}}", encoding="utf-8")
    assert [tier.local for tier in load(str(file), {}).tiers.values()] == [False, True]


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("http://h:4000/v1", "http://h:4000"),
        ("http://h:4000/v1/", "http://h:4000"),
        ("http://h/litellm/v1", "http://h/litellm"),
        ("http://h/litellm", "http://h/litellm"),
        ("http://v1", "http://v1"),
        ("http://h/xv1", "http://h/xv1"),
    ],
)
def test_litellms_address_may_be_written_as_clients_are_given_it(url: str, base: str) -> None:
    assert from_mapping({"upstream": {"base_url": url}}).upstream.base_url == base


def test_an_empty_key_is_none() -> None:
    """As from a template whose variable is not set: it would let in whoever sends no key."""
    with pytest.raises(ValidationError, match=r"api_keys\.0"):
        ServerSettings(api_keys=("",))
