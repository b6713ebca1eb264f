"""The Kubernetes manifests: against the schemas of Kubernetes, each other, and the code."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from mlx_stack_proxy.settings_source import load
from tests.conftest import missing, require_program
from tests.support.ports import free_port

FOLDER = Path(__file__).parents[2] / "deploy" / "kubernetes"
Json = dict[str, Any]
ALL: list[Json] = [
    one for file in sorted(FOLDER.glob("*.yaml")) for one in yaml.safe_load_all(file.read_text())
]
PROXY = "mlx-stack-proxy"


def found(kind: str, name: str = PROXY) -> Json:
    (one,) = [o for o in ALL if (o["kind"], o["metadata"]["name"]) == (kind, name)]
    return one


POD: Json = found("Deployment")["spec"]["template"]
CONTAINER: Json = POD["spec"]["containers"][0]


@pytest.mark.parametrize("one", ALL, ids=lambda o: f"{o['kind']}-{o['metadata']['name']}")
def test_kubernetes_would_take_it(one: Json) -> None:
    if importlib.util.find_spec("kubernetes_validate") is None:
        missing("kubernetes-validate")
    validator = importlib.import_module("kubernetes_validate")
    validator.validate(one, validator.latest_version(), strict=True)


def test_every_selector_finds_its_pods() -> None:
    labels = POD["metadata"]["labels"]
    assert found("Deployment")["spec"]["selector"]["matchLabels"] == labels
    assert found("Service")["spec"]["selector"] == labels
    assert found("PodDisruptionBudget")["spec"]["selector"]["matchLabels"] == labels
    assert found("NetworkPolicy")["spec"]["podSelector"]["matchLabels"] == labels
    target = found("HorizontalPodAutoscaler")["spec"]["scaleTargetRef"]
    assert (target["kind"], target["name"]) == ("Deployment", PROXY)
    redis = found("StatefulSet", "mlx-stack-redis")["spec"]["template"]["metadata"]["labels"]
    assert found("Service", "mlx-stack-redis")["spec"]["selector"] == redis
    assert {"podSelector": {"matchLabels": redis}} in [
        peer for rule in found("NetworkPolicy")["spec"]["egress"] for peer in rule["to"]
    ]


def test_there_are_always_some_left() -> None:
    least = found("HorizontalPodAutoscaler")["spec"]["minReplicas"]
    assert found("PodDisruptionBudget")["spec"]["minAvailable"] < least == 2
    assert found("Deployment")["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0


def test_only_the_autoscaler_says_how_many() -> None:
    assert "replicas" not in found("Deployment")["spec"]


def test_the_probes_ask_what_there_is() -> None:
    (port,) = CONTAINER["ports"]
    paths = {name: CONTAINER[f"{name}Probe"]["httpGet"] for name in ("liveness", "readiness")}
    assert paths["liveness"] == {"path": "/health", "port": port["name"]}
    assert paths["readiness"] == {"path": "/ready", "port": port["name"]}
    assert found("Service")["spec"]["ports"][0]["targetPort"] == port["name"]


def environment(container: Json, secret: dict[str, str]) -> dict[str, str]:
    """As kubelet makes it: what `envFrom` gives is not put into other values."""
    whole = dict(secret) if "envFrom" in container else {}
    own: dict[str, str] = {}
    for one in container["env"]:
        asked = one.get("valueFrom", {}).get("secretKeyRef", {})
        value = secret[asked["key"]] if asked else one["value"]
        own[one["name"]] = re.sub(r"\$\((\w+)\)", lambda name: own[name[1]], value)
    return whole | own


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[Callable[..., tuple[int, str]]]:
    """The real one with the manifest's arguments: runs a command of its container, with further
    variables, and gives the exit code and the output."""
    (container,) = found("StatefulSet", "mlx-stack-redis")["spec"]["template"]["spec"]["containers"]
    given = environment(container, found("Secret")["stringData"])
    program, *words = [
        re.sub(r"\$\((\w+)\)", lambda name: given[name[1]], word) for word in container["args"]
    ]
    port = str(free_port())

    def ask(command: str, **environ: str) -> tuple[int, str]:
        done = subprocess.run(
            ["sh", "-c", command.replace("redis-cli", f"redis-cli -p {port}")],
            env={**os.environ, **given, **environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            timeout=10,
            check=False,
        )
        return done.returncode, done.stdout

    listen = ("--port", port, "--bind", "127.0.0.1", "--dir", str(tmp_path))
    command = [require_program(program), *words, *listen]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:
        try:
            yield ask
        finally:
            server.terminate()


def test_redis_takes_the_password_that_the_proxies_have(
    redis: Callable[..., tuple[int, str]],
) -> None:
    (container,) = found("StatefulSet", "mlx-stack-redis")["spec"]["template"]["spec"]["containers"]
    shell, option, probe = container["readinessProbe"]["exec"]["command"]
    assert (shell, option) == ("sh", "-c")
    end = time.monotonic() + 20
    while redis(probe)[0]:
        assert time.monotonic() < end, "it never becomes ready"
    assert redis(probe, REDISCLI_AUTH="another")[0] == 1
    words = redis("redis-cli config get maxmemory maxmemory-policy")[1].split()
    kept = dict(zip(words[::2], words[1::2], strict=True))
    assert kept["maxmemory-policy"] == "noeviction"
    assert container["resources"]["limits"]["memory"] == "512Mi"
    assert 0 < int(kept["maxmemory"]) < 0.75 * 512 * 2**20


def test_no_service_puts_variables_into_a_pod() -> None:
    for pod in (POD, found("StatefulSet", "mlx-stack-redis")["spec"]["template"]):
        assert pod["spec"]["enableServiceLinks"] is False


def test_names_are_found_and_model_servers_reached() -> None:
    egress = found("NetworkPolicy")["spec"]["egress"]
    (dns,) = [rule for rule in egress if {"port": 53, "protocol": "UDP"} in rule.get("ports", [])]
    assert {"port": 53, "protocol": "TCP"} in dns["ports"]
    assert {"ipBlock": {"cidr": "169.254.20.10/32"}} in dns["to"]
    (servers,) = [rule for rule in egress if "ports" not in rule]
    (peer,) = servers["to"]
    assert peer["podSelector"]["matchLabels"] == {"mlx-stack/model-server": "true"}


def test_the_configuration_serves(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(found("ConfigMap")["data"]["config.yaml"])
    secret = found("Secret")["stringData"]
    settings = load(str(config), environment(CONTAINER, secret))
    assert settings.server.port == CONTAINER["ports"][0]["containerPort"]
    assert settings.state.backend == "redis", "two replicas count together"
    assert settings.state.redis_url == "redis://:changeMeFour@mlx-stack-redis:6379/0"
    assert settings.server.admin_key
    assert len(settings.server.api_keys) == 1
    assert settings.upstream.api_key_env in secret
    wait = int(CONTAINER["lifecycle"]["preStop"]["exec"]["command"][1])
    whole = POD["spec"]["terminationGracePeriodSeconds"]
    assert whole > wait + settings.server.shutdown_grace_seconds
    mounts = {mount["name"]: mount["mountPath"] for mount in CONTAINER["volumeMounts"]}
    assert set(mounts) == {volume["name"] for volume in POD["spec"]["volumes"]}
    assert CONTAINER["args"][-1] == f"{mounts['config']}/config.yaml"


@pytest.mark.parametrize(
    "pod",
    [POD, found("StatefulSet", "mlx-stack-redis")["spec"]["template"]],
    ids=["proxy", "redis"],
)
def test_pods_keep_to_the_restricted_standard(pod: Json) -> None:
    spec = pod["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in spec["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["resources"]["limits"]["memory"]


def test_the_user_is_the_images() -> None:
    dockerfile = (FOLDER.parents[1] / "Dockerfile").read_text()
    who = POD["spec"]["securityContext"]
    assert f"USER {who['runAsUser']}:{who['runAsGroup']}\n" in dockerfile
