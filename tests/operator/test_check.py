"""`mlx-stack-proxy check`: a line for each thing, and an exit code."""

from __future__ import annotations

import re

import pytest

from tests.operator.conftest import Typed
from tests.support.ports import free_port
from tests.support.replies import completion, litellm_error, stream, text_stream, with_role
from tests.support.scripted_server import Call, Reply, ScriptedServer, WhenWhole

MODELS = ("GET", "/v1/models")


def config(typed: Typed, base_url: str, more: str = "") -> None:
    tiers = "" if "tiers:" in more else "tiers: {fast: , standard: }"
    typed.write(f"upstream: {{base_url: '{base_url}'}}\n{tiers}\n{more}")


async def checked(typed: Typed, url: str, *words: str) -> tuple[int, list[str]]:
    """The exit code and the lines, each whole; ``url`` is written as URL there."""
    ran = await typed.beside("check", *(words or ("--no-probe",)))
    assert ran.err == ""
    return ran.code, ran.out.replace("\n      ", " ").replace(url, "URL").splitlines()


async def test_all_is_well(typed: Typed, litellm: ScriptedServer) -> None:
    config(typed, litellm.url)
    assert await checked(typed, litellm.url) == (
        0,
        [
            "ok    configuration: config.yaml",
            "ok    LiteLLM at URL: reachable, key accepted, 2 models",
            "ok    tier fast: model 'fast' is known to LiteLLM",
            "ok    tier standard: model 'standard' is known to LiteLLM",
        ],
    )


async def test_keys_that_mean_nothing_any_more(typed: Typed, litellm: ScriptedServer) -> None:
    more = "reliability: {loop_detection: {compare: all, similarity_threshold: 0.9}}"
    config(typed, litellm.url, more)
    code, lines = await checked(typed, litellm.url)
    key = "reliability.loop_detection.compare"
    assert (code, lines[1]) == (0, f"note  {key}: has no effect any more; remove it")
    assert "similarity" not in "".join(lines), "that one works again"


async def test_a_tier_whose_model_litellm_does_not_have(typed: Typed) -> None:
    many = ("fast", *(f"m{number}" for number in range(9)))
    async with ScriptedServer(models=many) as litellm:
        config(typed, litellm.url)
        code, lines = await checked(typed, litellm.url)
    assert code == 1
    assert lines[2:] == [
        "ok    tier fast: model 'fast' is known to LiteLLM",
        "FAIL  tier standard: model 'standard' is not among LiteLLM's: "
        "fast, m0, m1, m2, m3, m4, m5, m6, …",
        "→     set tiers.standard.model to one of these, or add the model to LiteLLM's model_list",
    ]


async def test_nobody_there(typed: Typed, nobody: str) -> None:
    typed.monkeypatch.setenv("MLX_STACK_UPSTREAM__BASE_URL", nobody)
    typed.monkeypatch.setenv("MLX_STACK_SERVER__PORT", str(free_port()))
    assert await checked(typed, nobody) == (
        1,
        [
            "ok    configuration: no file, the defaults",
            "FAIL  LiteLLM at URL: the connection was refused",
            "→     start it, or set upstream.base_url (with init: --base-url) to its address",
        ],
    )


GIVE = "export LITELLM_MASTER_KEY=… with LiteLLM's master key, here and where the proxy runs"
WITHOUT = "answered status {} when asked for its models without a key ({})"
WITH = "refused the key when asked for its models ($LITELLM_MASTER_KEY is set)"
NO_LITELLM = "answered status {} without a list of models, so it is not LiteLLM"
RIGHT = (
    "set upstream.base_url (with init: --base-url) to where LiteLLM listens, "
    "such as http://127.0.0.1:4000"
)
UNSET = "$LITELLM_MASTER_KEY is not set"
UNNAMED = "upstream.api_key_env names no variable"


@pytest.mark.parametrize(
    ("key", "reply", "said"),
    [
        (None, Reply.json({}, 401), (WITHOUT.format(401, UNSET), GIVE)),
        ("", Reply.json({}, 500), (WITHOUT.format(500, UNSET), GIVE)),
        ("k", Reply.json({}, 400), (WITH, GIVE)),
        ("k", Reply.json({}, 403), (WITH, GIVE)),
        (
            "k",
            Reply.json({}, 500),
            ("answered status 500 when asked for its models", "read LiteLLM"),
        ),
        (
            "no variable",
            Reply.json({}, 401),
            (WITHOUT.format(401, UNNAMED), "name the variable that holds"),
        ),
        (None, Reply.json(b""), (NO_LITELLM.format(200), RIGHT)),
        (None, Reply.json({}, 404), (NO_LITELLM.format(404), RIGHT)),
        (None, Reply.json({}, 307), (NO_LITELLM.format(307), RIGHT)),
    ],
)
async def test_where_no_models_are_listed(
    key: str | None, reply: Reply, said: tuple[str, str], typed: Typed, litellm: ScriptedServer
) -> None:
    """``key``: LiteLLM's; "no variable": the configuration names none for it."""
    litellm.routes[MODELS] = reply
    config(typed, litellm.url)
    if key == "no variable":
        typed.write(f"upstream: {{base_url: '{litellm.url}', api_key_env: null}}")
    elif key is not None:
        typed.monkeypatch.setenv("LITELLM_MASTER_KEY", key)
    code, [_, reached, failed, to_do] = await checked(typed, litellm.url)
    assert (code, reached) == (1, "ok    LiteLLM at URL: reachable")
    assert failed == f"FAIL  LiteLLM at URL: {said[0]}"
    assert to_do.startswith(f"→     {said[1]}")


async def test_a_health_url_where_nobody_listens(
    typed: Typed, litellm: ScriptedServer, nobody: str
) -> None:
    config(typed, litellm.url, f"tiers: {{fast: {{health_url: '{nobody}/health'}}}}")
    code, lines = await checked(typed, nobody)
    assert (code, lines[-2:]) == (
        1,
        [
            "FAIL  tier fast: nothing listens at its health_url, URL/health",
            "→     start its model server, or correct tiers.fast.health_url",
        ],
    )


async def test_a_store_that_cannot_be_used(
    typed: Typed, litellm: ScriptedServer, nobody: str
) -> None:
    (typed.home / "file").touch()
    (typed.home / "notes.txt").write_text("mine")
    redis = nobody.replace("http", "redis") + "/0"
    typed.monkeypatch.setattr("os.access", lambda path, _: path != typed.home / "locked.db")
    (typed.home / "locked.db").touch()
    for state, why in (
        (f"{{path: '{typed.home}/file/reliability.db'}}", "reliability.db can't be written: "),
        (f"{{path: '{typed.home}/locked.db'}}", f"{typed.home}/locked.db is not writable"),
        (f"{{path: '{typed.home}'}}", " is a folder"),
        (f"{{path: '{typed.home}/notes.txt'}}", "notes.txt isn't an SQLite file"),
        (f"{{backend: redis, redis_url: '{redis}'}}", f"Redis at {redis}: "),
    ):
        config(typed, litellm.url, f"state: {state}")
        code, lines = await checked(typed, litellm.url)
        assert code == 1 and lines[-2].startswith("FAIL  state: ") and why in lines[-2]


async def test_an_address_of_a_proxy(typed: Typed, litellm: ScriptedServer) -> None:
    own = {"id": "fast", "object": "model", "owned_by": "mlx-stack"}
    litellm.routes[MODELS] = Reply.json({"object": "list", "data": [own]})
    config(typed, litellm.url, "tiers: {fast: {}}")
    code, _ = await checked(typed, litellm.url, "--no-probe")
    assert code == 0  # LiteLLM with the reliability layer inside
    litellm.routes["GET", "/health/liveliness"] = Reply.json({}, 404)
    config(typed, litellm.url)
    code, lines = await checked(typed, litellm.url)
    assert (code, lines[2:]) == (
        1,
        ["FAIL  LiteLLM at URL: is an mlx-stack-proxy, not LiteLLM", f"→     {RIGHT}"],
    )
    (typed.home / "config.yaml").unlink()
    ran = await typed.beside("init", "--base-url", litellm.url)
    assert ran.code == 1 and "not LiteLLM" in " ".join((ran.out + ran.err).split())


async def test_an_address_of_a_model_server(typed: Typed) -> None:
    async with ScriptedServer(models=("default_model",)) as server:
        server.routes["GET", "/health/liveliness"] = Reply.json({}, 404)
        config(typed, server.url)
        code, lines = await checked(typed, server.url)
        why = "it lists default_model, but is not LiteLLM; a model server?"
        assert (code, lines[1:]) == (1, [f"FAIL  LiteLLM at URL: {why}", f"→     {RIGHT}"])


@pytest.mark.parametrize(
    ("words", "problem", "step"),
    [
        (
            ["--config", "nowhere.yaml"],
            "FAIL  nowhere.yaml: can't be read: ",
            "`mlx-stack-proxy init`",
        ),
        ([], "FAIL  config.yaml: is not valid YAML: ", "correct the file at this position"),
    ],
)
def test_a_file_that_cannot_be_read(
    words: list[str], problem: str, step: str, typed: Typed
) -> None:
    typed.write("server:\n\tport: 1\n")
    ran = typed("check", *words)
    lines = ran.out.splitlines()
    assert (ran.code, lines[0].startswith(problem)) == (1, True)
    assert step in " ".join(lines[1:]) and "settings.md" not in ran.out


def test_an_upstream_that_is_the_proxy_itself(typed: Typed) -> None:
    """It would ask itself without end."""
    typed.write("server: {port: 4177}\nupstream: {base_url: 'http://localhost:4177/v1'}")
    for command in ("check", "serve"):
        ran = typed(command)
        assert ran.code != 0 and "this proxy's own address" in " ".join((ran.out + ran.err).split())


@pytest.mark.parametrize(
    ("text", "starts"),
    [
        ("sever: 1\nstream: {mode: life}", ["FAIL  config.yaml: sever", "FAIL  config.yaml: str"]),
        ("server: {workers: 2}", ["FAIL  settings: server.workers: 2 processes need a shared"]),
    ],
)
@pytest.mark.parametrize("how", ["--no-probe", "--settings"])
def test_every_mistake_of_the_configuration_has_a_line(
    text: str, starts: list[str], how: str, typed: Typed
) -> None:
    typed.write(text)
    ran = typed("check", how)
    lines = ran.out.replace("\n      ", " ").splitlines()
    assert ran.code == 1
    assert lines.pop().startswith("→     docs/settings.md")
    assert all(line.startswith(start) for line, start in zip(lines, starts, strict=True))
    assert ("did you mean `server`?" in lines[0]) == ("sever" in text)


def test_the_settings_alone(typed: Typed) -> None:
    typed.write("upstream: {base_url: 'http://x'}")
    ran = typed("check", "--settings")
    assert (ran.code, "  file     base_url: 'http://x'" in ran.out.splitlines()) == (0, True)


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        (Reply.json({"level": "warning"}), "ok    memory pressure at URL/: warning"),
        (Reply.json({"error": "not read yet"}, 503), "FAIL  memory pressure at URL/: status 503"),
        (Reply.json({}), "FAIL  memory pressure at URL/: no level of normal, warning, critical"),
        (None, "FAIL  memory pressure at URL/: the connection was refused"),
    ],
)
async def test_a_host_that_is_to_tell_the_memory_pressure(
    answer: Reply | None, line: str, typed: Typed, litellm: ScriptedServer
) -> None:
    async with ScriptedServer() as host:
        more = f"reliability: {{memory_pressure: {{source: '{host.url}/'}}}}"
        if answer is None:
            await host.stop()
        else:
            host.always(answer)
        config(typed, litellm.url, more)
        code, lines = await checked(typed, host.url)
    assert line in lines
    assert lines[-1].startswith("→" if line.startswith("FAIL") else "ok")
    assert code == (0 if line.startswith("ok") else 1)


def answers(call: Call) -> Reply:
    """A tier that can do everything, whichever of the three questions it is."""
    body = call.json()
    if not body.get("stream"):
        return Reply.json(completion({"content": "1"}, "length"))
    if "tools" in body:
        function = {"name": "get_weather", "arguments": '{"city": "Lima"}'}
        one = {"index": 0, "id": "call_1", "type": "function", "function": function}
        return stream(with_role({"tool_calls": [one]}, finish="tool_calls"))
    return text_stream("1", " 2", " 3")


async def test_each_tier_of_this_machine_is_asked(typed: Typed, litellm: ScriptedServer) -> None:
    litellm.always(WhenWhole(answers))
    config(typed, litellm.url, "tiers: {fast: {local: false}, standard: }")
    code, lines = await checked(typed, litellm.url, "--config", "config.yaml")
    assert code == 0
    kinds = [re.sub(r"[0-9.]+ s\b", "N s", line) for line in lines[4:]]
    assert kinds == [
        "note  tier fast: not on this machine, so not called; --cloud calls it",
        "ok    tier standard: answers (N s)",
        "ok    tier standard: streams (N s)",
        "ok    tier standard: calls tools",
        "ok    tier standard: ignores a JSON schema, so retries are not guided",
    ]
    assert {call.json()["model"] for call in litellm.calls if call.body} == {"standard"}
    code, lines = await checked(typed, litellm.url, "--cloud")
    assert (code, len(lines)) == (0, 11)
    assert {call.json()["model"] for call in litellm.calls if call.body} == {"fast", "standard"}


async def test_a_tier_that_does_not_answer_is_a_failure(
    typed: Typed, litellm: ScriptedServer
) -> None:
    litellm.always(litellm_error(500, "Connection error. " + "xyz " * 40))
    config(typed, litellm.url)
    ran = await typed.beside("check")
    assert ran.code == 1
    assert all(len(line) <= 80 for line in ran.out.splitlines())
    lines = ran.out.replace("\n      ", " ").splitlines()
    assert [line.partition(" xyz")[0] for line in lines[4:]] == [
        said
        for tier in ("fast", "standard")
        for said in (
            f"FAIL  tier {tier}: a one-token completion: status 500: Connection error.",
            "→     read the logs of LiteLLM and the model server; is that server running?",
        )
    ]


# The cloud

FALLBACK = (
    "reliability: {{escalation: {{cloud_fallback: {{model: vendor/large, api_key_env: CLOUD_KEY, "
    "base_url: '{}/api/v1'}}}}}}"
)
SPECIFIED = "tiers: {fast: , standard: , premium: }\n"
THREE = "tiers: {fast: , standard: }\n"


@pytest.mark.specification(98)
@pytest.mark.parametrize(
    ("tiers", "tier"), [(SPECIFIED, "premium"), (THREE, "cloud_fallback")], ids=["named", "its own"]
)
async def test_the_direct_way_into_the_cloud(
    tiers: str, tier: str, typed: Typed, litellm: ScriptedServer
) -> None:
    typed.monkeypatch.setenv("CLOUD_KEY", "sk-of-the-cloud")
    litellm.always(WhenWhole(answers))
    async with ScriptedServer() as cloud:
        cloud.always(WhenWhole(answers))
        config(typed, litellm.url, tiers + FALLBACK.format(cloud.url))
        code, lines = await checked(typed, litellm.url)
        direct = f"ok    tier {tier}: model 'vendor/large', called directly at {cloud.url}/api/v1"
        assert (code, lines[-1]) == (0, direct)
        assert cloud.calls == []
        code, lines = await checked(typed, litellm.url, "--cloud")
        assert (code, lines[-1]) == (0, f"ok    tier {tier}: calls tools")
        assert {call.json()["model"] for call in cloud.calls if call.body} == {"vendor/large"}
        assert {call.header("authorization") for call in cloud.calls} == {"Bearer sk-of-the-cloud"}
        assert "num_retries" not in cloud.calls[0].json()
    assert "vendor/large" not in {call.json()["model"] for call in litellm.calls if call.body}


@pytest.mark.specification(97, 98)
@pytest.mark.parametrize(
    ("tiers", "tier"), [(SPECIFIED, "premium"), (THREE, "cloud_fallback")], ids=["named", "its own"]
)
async def test_a_direct_way_without_a_key(
    tiers: str, tier: str, typed: Typed, litellm: ScriptedServer
) -> None:
    typed.monkeypatch.delenv("CLOUD_KEY", raising=False)
    litellm.always(WhenWhole(answers))
    config(typed, litellm.url, tiers + FALLBACK.format("http://127.0.0.1:9"))
    for words in ((), ("--cloud",)):
        code, lines = await checked(typed, litellm.url, *words)
        assert code == 1
        assert f"FAIL  tier {tier}: $CLOUD_KEY is not set, so it is never called" in lines
    assert "→     export CLOUD_KEY=… with openrouter's key" in lines


async def test_a_cloud_that_litellm_serves_needs_no_key_of_ours(typed: Typed) -> None:
    typed.monkeypatch.delenv("CLOUD_KEY", raising=False)
    async with ScriptedServer(models=("fast", "standard", "premium")) as litellm:
        config(typed, litellm.url, SPECIFIED + FALLBACK.format("http://127.0.0.1:9"))
        code, lines = await checked(typed, litellm.url)
    assert (code, lines[-1]) == (
        0,
        "note  cloud_fallback: $CLOUD_KEY is not set; the cloud is called only through LiteLLM",
    )


TEMPLATE = r'{{- "<tool_call>\n{{\"name\": <name>, \"arguments\": <args>}}\n</tool_call>" }}'


@pytest.mark.parametrize("doubled", [True, False])
async def test_a_template_that_shows_doubled_braces(doubled: bool, typed: Typed) -> None:
    template = TEMPLATE if doubled else TEMPLATE.replace(r"{{\"", r"{\"")
    async with ScriptedServer(models=("fast",)) as litellm:
        entry = {"model_name": "fast", "litellm_params": {"model": "openai/m"}}
        entry["litellm_params"]["api_base"] = f"{litellm.url}/v1"  # type: ignore[index]
        litellm.routes["GET", "/v1/model/info"] = Reply.json({"data": [entry]})
        litellm.routes["GET", "/props"] = Reply.json({"chat_template": template})
        litellm.always(Reply.json(completion({"content": "1"}, "length")))
        config(typed, litellm.url, "tiers: {fast: }")
        _, lines = await checked(typed, litellm.url, "--cloud")
    warned = "note  tier fast: its chat template shows calls in doubled braces" in lines
    assert warned is doubled
