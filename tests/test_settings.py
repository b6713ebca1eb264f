"""Settings from file and environment, what is said of mistakes, and the example file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from app.settings import (
    DEFAULT_TIERS,
    ServerSettings,
    Settings,
    TierSettings,
    UpstreamSettings,
    is_loopback,
)
from app.settings_source import SettingsError, from_mapping, load

Json = dict[str, Any]
EXAMPLE = Path(__file__).parent.parent / "config.example.yaml"


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No config.yaml of whoever runs the tests."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def config(folder: Path, text: str, name: str = "config.yaml") -> str:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return str(file)


def at(path: str, value: Any) -> Json:
    """{"a": {"b": value}} for "a.b"."""
    for key in reversed(path.split(".")):
        value = {key: value}
    whole: Json = value
    return whole


def problems(data: Json) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        from_mapping(data)
    return caught.value.problems


def environment_problems(**variables: str) -> str:
    with pytest.raises(SettingsError) as caught:
        load(None, {f"MLX_STACK_{key}": value for key, value in variables.items()})
    return "\n".join(caught.value.problems)


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


@pytest.mark.parametrize(
    ("variable", "text", "path", "value"),
    [
        ("SERVER__PORT", "4200", "server.port", 4200),
        ("server__allow_bypass", "true", "server.allow_bypass", True),
        ("SERVER__API_KEYS", '["a", "b"]', "server.api_keys", ("a", "b")),
        ("SERVER", '{"port": 7}', "server.port", 7),
        (
            "RELIABILITY__LOOP_DETECTION__ENABLED",
            "false",
            "reliability.loop_detection.enabled",
            False,
        ),
        (
            "RELIABILITY__LOOP_DETECTION__GENERATION__MIN_LAPS",
            "7",
            "reliability.loop_detection.generation.min_laps",
            7,
        ),
        (
            "RELIABILITY__ESCALATION__CHAIN",
            '["standard"]',
            "reliability.escalation.chain",
            ("standard",),
        ),
        (
            "RELIABILITY__TOOL_VALIDATION__REPAIR",
            "off",
            "reliability.tool_validation.repair",
            "off",
        ),
        ("STREAM__HOLD_SECONDS", "0.5", "stream.hold_seconds", 0.5),
    ],
)
def test_every_key_can_be_a_variable(variable: str, text: str, path: str, value: Any) -> None:
    found: Any = load(None, {f"MLX_STACK_{variable}": text})
    for key in path.split("."):
        found = getattr(found, key)
    assert found == value


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
        ("server: {port: 1", "is not valid YAML"),
        ("server:\n\tport: 1", "is not valid YAML"),
        ("[1, 2]", "must hold a mapping of sections"),
        ("just words", "must hold a mapping of sections"),
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


@pytest.mark.parametrize("text", ["", "# nothing\n", "tiers:\n"])
def test_an_empty_file_is_the_defaults(text: str, empty_folder: Path) -> None:
    assert load(config(empty_folder, text), {}) == from_mapping({})


# Mistakes


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("sever", "sever: unknown key `sever`; did you mean `server`?"),
        ("server.prot", "server.prot: unknown key `prot`; did you mean `port`?"),
        (
            "reliability.loop_detection.generation.min_lap",
            "reliability.loop_detection.generation.min_lap: unknown key `min_lap`; "
            "did you mean `min_laps`?",
        ),
        ("tiers.fast.modle", "tiers.fast.modle: unknown key `modle`; did you mean `model`?"),
        ("tiers.tools.modle", "tiers.tools.modle: unknown key `modle`; did you mean `model`?"),
        (
            "reliability.token_budget.per_tier.fast.per_hours",
            "reliability.token_budget.per_tier.fast.per_hours: unknown key `per_hours`; "
            "did you mean `per_hour`?",
        ),
        (
            "reliability.loop_detection.tool_calls.frequency_overrides.bash.wran",
            "reliability.loop_detection.tool_calls.frequency_overrides.bash.wran: unknown key "
            "`wran`; did you mean `warn`?",
        ),
        ("stream.zzz", "stream.zzz: unknown key `zzz`; known: mode, hold_seconds, "),
        ("port", "port: unknown key `port`; it belongs under `server`"),
        (
            "server.idle_timeout",
            "server.idle_timeout: unknown key `idle_timeout`; it belongs under `tiers.NAME`",
        ),
        (
            "max_retries_before_escalate",
            "max_retries_before_escalate: unknown key `max_retries_before_escalate`; it belongs "
            "under `reliability.escalation`",
        ),
        (
            "reliability.max_output_tokens",
            "reliability.max_output_tokens: unknown key `max_output_tokens`; known: "
            "loop_detection, ",
        ),
        ("_env_file", "_env_file: unknown key `_env_file`; known: server, "),
        ("self", "self: unknown key `self`; known: server, "),
    ],
)
def test_an_unknown_key_names_its_path_and_the_nearest(path: str, said: str) -> None:
    assert any(problem.startswith(said) for problem in problems(at(path, 1)))


def test_keys_that_are_no_strings() -> None:
    assert problems({1: 2}) == [
        "1: unknown key `1`; known: server, upstream, stream, tiers, reliability, state, "
        "observability"
    ]
    assert problems({"server": {1: 2}})[0].startswith("server.1: ")
    assert problems({"tiers": {1: {}}})[0].startswith("tiers.1")


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("server.port", "x", "server.port: input should be a valid integer"),
        ("server.port", 65_536, "server.port: input should be less than or equal to 65535"),
        ("server", [], "server: must hold keys of its own"),
        ("server.api_keys", 7, "server.api_keys: must be a list"),
        ("tiers", {}, "tiers: "),
        ("tiers", [], "tiers: must hold keys of its own"),
        ("tiers.fast", "qwen", "tiers.fast: must hold keys of its own"),
        ("tiers.fast.tools", "x", "tiers.fast.tools: input should be 'auto', True or False"),
        ("tiers.fast.max_concurrency", 0, "tiers.fast.max_concurrency: input should be greater"),
        ("tiers.fast.idle_timeout", float("nan"), "tiers.fast.idle_timeout: input should be a f"),
        ("tiers.fast.total_timeout", float("inf"), "tiers.fast.total_timeout: input should be a "),
        ("upstream.base_url", "localhost:4000", "upstream.base_url: string should match"),
        (
            "stream.mode",
            "life",
            "stream.mode: input should be 'live' or 'buffered', not 'life'; di",
        ),
        ("observability.log_level", "warn", "observability.log_level: input should be 'debug', "),
        (
            "reliability.escalation.escalate_on",
            ["timeot"],
            "reliability.escalation.escalate_on.0: input should be ",
        ),
        ("reliability.memory_pressure.source", "ftp://x", "reliability.memory_pressure.source: "),
        (
            "reliability.escalation.cloud_fallback",
            {},
            "reliability.escalation.cloud_fallback.model: is required",
        ),
        (
            "reliability.loop_detection.similarity_threshold",
            1.1,
            "reliability.loop_detection.similarity_threshold: input should be less than or equal",
        ),
    ],
)
def test_a_bad_value_names_its_path_and_what_is_allowed(path: str, value: Any, said: str) -> None:
    assert [problem for problem in problems(at(path, value)) if problem.startswith(said)]


def test_a_word_that_is_nearly_right() -> None:
    found = problems(at("reliability.escalation.escalate_on", ["timeot"]))
    assert found[0].endswith("not 'timeot'; did you mean `timeout`?")


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
    assert problems({"tiers": {name: {}}})[0].startswith(f"tiers.{name}")


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


# Mistakes in the environment


def test_an_unknown_section_names_the_variable() -> None:
    said = environment_problems(SEVER__PORT="1")
    assert said == (
        "environment variable MLX_STACK_SEVER__PORT: unknown section `sever`; "
        "did you mean `server`?"
    )


def test_an_unknown_key_in_the_environment_names_its_path() -> None:
    assert environment_problems(SERVER__PROT="1").startswith("server.prot: unknown key `prot`")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SERVER__API_KEYS", "sk-secret"),
        ("SERVER", "sk-secret"),
        ("RELIABILITY__ESCALATION__ALIASES", '{"sk-secret": '),
        ("TIERS__FAST__PARAMS", "sk-secret"),
    ],
)
def test_what_is_no_json_names_the_variable_but_not_its_value(name: str, value: str) -> None:
    said = environment_problems(**{name: value})
    assert f"environment variable MLX_STACK_{name}: " in said or "tiers.fast.params" in said
    assert "JSON" in said or "mapping" in said


# Secrets


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


@pytest.mark.parametrize(
    "name", ["SERVER__API_KEYS", "SERVER", "RELIABILITY__TOKEN_BUDGET__PER_KEY"]
)
def test_no_message_about_the_environment_holds_a_key(name: str) -> None:
    assert SECRET not in environment_problems(**{name: SECRET})


# Whatever is in the file


VALUE = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)


def of_model(model: type[BaseModel], depth: int = 0) -> st.SearchStrategy[Any]:
    """Mappings with the right keys more often than not, and anything at all under them."""
    inner: dict[str, st.SearchStrategy[Any]] = {}
    for name, field in model.model_fields.items():
        found = [m for m in models_in(field.annotation) if depth < 3]
        inner[name] = VALUE | of_model(found[0], depth + 1) if found else VALUE
    return st.fixed_dictionaries({}, optional=inner) | st.dictionaries(
        st.text(max_size=3) | st.integers(0, 3), VALUE, max_size=2
    )


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from models_in(argument)


@given(of_model(Settings))
def test_no_mapping_raises_anything_else(data: Json) -> None:
    try:
        assert isinstance(from_mapping(data), Settings)
    except SettingsError as error:
        assert error.problems and all(error.problems)


@given(st.dictionaries(st.text("ABCDEFX_", max_size=12), st.text(max_size=8), max_size=3))
def test_no_environment_raises_anything_else(variables: dict[str, str]) -> None:
    named = {f"MLX_STACK_SERVER__{key}": value for key, value in variables.items()}
    try:
        load(None, named)
    except SettingsError as error:
        assert error.problems


# The example file


def leaves(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """The paths of all keys of the schema; tiers are walked by one of them."""
    for name, field in model.model_fields.items():
        path = f"{prefix}{name}"
        if path == "tiers":
            yield from leaves(TierSettings, "tiers.fast.")
            continue
        annotation = field.annotation
        plain = isinstance(annotation, type) and issubclass(annotation, BaseModel)
        optional = [m for m in get_args(annotation) if isinstance(m, type)]
        inner = [annotation] if plain else [m for m in optional if issubclass(m, BaseModel)]
        if inner and not isinstance(field.default, dict):
            yield from leaves(inner[0], f"{path}.")
        else:
            yield path


def flat(data: Any, prefix: str = "", stops: frozenset[str] = frozenset()) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in data.items():
        path = f"{prefix}{key}"
        if isinstance(value, dict) and value and path not in stops:
            found |= flat(value, f"{path}.", stops)
        else:
            found[path] = value
    return found


def example(uncommented: bool) -> Json:
    text = EXAMPLE.read_text(encoding="utf-8")
    if uncommented:  # prose has one blank behind its `#`, keys none and their own keys three
        text = re.sub(r"^(\s*)#(?=[a-z_]+:|  )", r"\1", text, flags=re.MULTILINE)
    data: Json = yaml.safe_load(text)
    return data


OTHER_TIERS = {
    f"tiers.{tier}.{key}" for tier, keys in DEFAULT_TIERS.items() for key in keys if tier != "fast"
}


def test_the_example_is_the_defaults() -> None:
    assert from_mapping(example(uncommented=False)) == from_mapping({})


def test_the_example_holds_every_key_and_no_other() -> None:
    assert set(flat(example(uncommented=True))) == set(leaves(Settings)) | OTHER_TIERS


def test_every_value_of_the_example_is_the_default() -> None:
    defaults = flat(from_mapping({}).model_dump(mode="json"))
    for path, value in flat(example(uncommented=False)).items():
        assert value == defaults[path], path
        assert type(value) is type(defaults[path]) or isinstance(value, int), path


def test_only_what_has_no_default_is_commented_out() -> None:
    shown = set(flat(example(uncommented=False)))
    hidden = set(flat(example(uncommented=True))) - shown
    defaults = from_mapping({}).model_dump()
    for path in hidden:
        value: Any = defaults
        for key in path.split("."):
            value = value[key] if value is not None else None
        assert value is None, path


def test_the_example_uncommented_is_valid_and_gives_consent_its_defaults() -> None:
    found = from_mapping(example(uncommented=True))
    fallback = found.reliability.escalation.cloud_fallback
    assert fallback is not None
    assert fallback == type(fallback)(model=fallback.model)
    assert found.server.admin_key and found.state.redis_url and found.tiers["fast"].health_url


def test_every_key_of_the_example_is_explained() -> None:
    lines = EXAMPLE.read_text(encoding="utf-8").splitlines()
    for before, line in zip(["", *lines], lines, strict=False):
        if re.match(r"\s*(#|#  +)?[a-z_]+: +\S", line):
            assert "  # " in line or before.strip().startswith("# "), line


def test_an_empty_section_means_its_defaults() -> None:
    assert from_mapping({"server": None, "tiers": None}) == from_mapping({})


@pytest.mark.parametrize("value", [True, False])
def test_a_switch_is_no_number(value: bool) -> None:
    said = problems({"tiers": {"fast": {"max_concurrency": value}}})
    assert said == [f"tiers.fast.max_concurrency: must be a number, not {str(value).lower()}"]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}])
def test_params_must_fit_into_json(value: Any) -> None:
    (said,) = problems({"tiers": {"fast": {"params": {"temperature": value}}}})
    assert said.startswith("tiers.fast.params: must be values that JSON can hold")


def test_an_empty_name_of_a_file_is_none(empty_folder: Path) -> None:
    assert load(environ={"MLX_STACK_CONFIG": ""}) == load(environ={})


def test_a_base_url_that_is_none_says_so_in_our_words() -> None:
    (said,) = problems({"upstream": {"base_url": "http://[::1"}})
    assert said.startswith("upstream.base_url: must be a URL such as ")


def test_an_empty_key_is_none() -> None:
    """As from a template whose variable is not set: it would let in whoever sends no key."""
    with pytest.raises(ValidationError, match=r"api_keys\.0"):
        ServerSettings(api_keys=("",))


@pytest.mark.parametrize("url", ["http://[::1", "http://h:abc", "http://h:99999", "http://a b"])
def test_an_address_that_is_none_stops_the_start(url: str) -> None:
    with pytest.raises(ValidationError, match="must be a URL such as"):
        UpstreamSettings(base_url=url)
