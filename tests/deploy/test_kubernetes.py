"""The Kubernetes manifests: against the schemas of Kubernetes, each other, and the code."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.settings_source import load
from tests.conftest import missing

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
    replicas = found("Deployment")["spec"]["replicas"]
    scaler = found("HorizontalPodAutoscaler")["spec"]
    assert replicas == scaler["minReplicas"] == 2
    assert found("PodDisruptionBudget")["spec"]["minAvailable"] < replicas
    assert found("Deployment")["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0


def test_the_probes_ask_what_there_is() -> None:
    (port,) = CONTAINER["ports"]
    paths = {name: CONTAINER[f"{name}Probe"]["httpGet"] for name in ("liveness", "readiness")}
    assert paths["liveness"] == {"path": "/health", "port": port["name"]}
    assert paths["readiness"] == {"path": "/ready", "port": port["name"]}
    assert found("Service")["spec"]["ports"][0]["targetPort"] == port["name"]


def test_the_configuration_serves(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(found("ConfigMap")["data"]["config.yaml"])
    secret = found("Secret")["stringData"]
    settings = load(str(config), secret)
    assert settings.server.port == CONTAINER["ports"][0]["containerPort"]
    assert settings.state.backend == "redis", "two replicas count together"
    assert "//mlx-stack-redis:" in (settings.state.redis_url or "")
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
    dockerfile = (FOLDER.parent / "docker" / "Dockerfile").read_text()
    assert f"USER {POD['spec']['securityContext']['runAsUser']}\n" in dockerfile


def test_images_are_plain_names() -> None:
    for one in ALL:
        for container in (
            one.get("spec", {}).get("template", {}).get("spec", {}).get("containers", [])
        ):
            name = container["image"]
            assert "/" not in name or "." not in name.partition("/")[0], name
