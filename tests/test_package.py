"""The wheel: what is in it, and that it runs in an environment of its own."""

from __future__ import annotations

import ast
import importlib.util
import itertools
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from tests.conftest import missing

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if importlib.util.find_spec("hatchling") is None:
        missing("hatchling")
    folder = tmp_path_factory.mktemp("wheel")
    options = ("--no-deps", "--no-build-isolation", "--no-index", "--quiet")
    command = (sys.executable, "-m", "pip", "wheel", *options, "-w", str(folder), str(ROOT))
    subprocess.run(command, check=True)
    (built,) = folder.iterdir()
    return built


def test_what_is_in_the_wheel(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    info = f"mlx_stack_proxy-{PROJECT['version']}.dist-info"
    assert {
        "mlx_stack_proxy/py.typed",
        "mlx_stack_proxy/config.schema.json",
        "mlx_stack_proxy/state/lua/write.lua",
        "mlx_stack_proxy/server/page/index.html",
        "mlx_stack_proxy/server/page/uPlot.iife.min.js",
        "mlx_stack_proxy/server/page/uPlot.LICENSE.txt",
        "mlx_stack_proxy/deploy/launchd/com.mlx-stack.proxy.plist",
        "mlx_stack_proxy/deploy/litellm/config.yaml",
        "mlx_stack_proxy/deploy/systemd/user/mlx-stack-proxy.service",
        "mlx_stack_proxy/deploy/systemd/user/sandbox.conf",
        "mlx_stack_proxy/deploy/systemd/system/mlx-stack-proxy.service",
        "mlx_stack_proxy/deploy/local/models/fast/model.safetensors",
        f"{info}/licenses/LICENSE",
        f"{info}/entry_points.txt",
    } <= names
    assert {name.partition("/")[0] for name in names} == {"mlx_stack_proxy", info}
    whole = {path.relative_to(ROOT / "app").as_posix() for path in (ROOT / "app").rglob("*.py")}
    assert whole <= names


def test_the_version_stands_in_one_place(wheel: Path) -> None:
    version = PROJECT["version"]
    metadata = zipfile.ZipFile(wheel).read(f"mlx_stack_proxy-{version}.dist-info/METADATA").decode()
    assert f"\nVersion: {version}\n" in metadata
    said = [
        path
        for path in (ROOT / "app").rglob("*.py")
        if f'"{version}"' in path.read_text(encoding="utf-8")
    ]
    assert said == []


def test_it_runs_where_only_it_is_installed(wheel: Path, tmp_path: Path) -> None:
    """In an environment of its own, with this one's packages behind it in place of downloads."""
    home = tmp_path / "home"
    home.mkdir()
    place = tmp_path / "venv"
    subprocess.run((sys.executable, "-m", "venv", "--without-pip", str(place)), check=True)
    python = place / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet")
    subprocess.run((*pip, "--no-deps", "--no-index", "--no-compile", str(wheel)), check=True)
    site = next(place.glob("lib/python*/site-packages"))
    (site / "behind.pth").write_text(sysconfig.get_path("purelib") + "\n")
    environ = {"HOME": str(home), "PATH": os.environ["PATH"]}

    def said(*arguments: str) -> str:
        done = subprocess.run(
            (str(place / "bin" / "mlx-stack-proxy"), *arguments),
            capture_output=True,
            text=True,
            check=False,
            cwd=home,
            env=environ,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert said("--version").strip() == f"mlx-stack-proxy {PROJECT['version']}"
    plan = said("service", "install", "--dry-run")
    assert f"{place}/bin/mlx-stack-proxy" in plan
    where = "from mlx_stack_proxy.operator.local_stack import tiers as t; "
    where += "print(t.__file__, t.demo_model('fast'))"
    done = subprocess.run(
        (str(python), "-c", where),
        capture_output=True,
        text=True,
        check=True,
        cwd=home,
        env=environ,
    )
    module, model = done.stdout.split()
    assert Path(module).is_relative_to(place)
    assert Path(model).is_relative_to(place)


def test_the_dependencies_are_few() -> None:
    """Each is one more to trust and to update for months; the demo stack is an extra."""
    assert len(PROJECT["dependencies"]) <= 21
    assert not any("litellm" in one or "mlx" in one for one in PROJECT["dependencies"])


def test_what_the_package_imports_is_installed_with_it() -> None:
    """With the package or one of its extras, but for those that only we need."""
    of_module = metadata.packages_distributions()
    extras = {k: v for k, v in PROJECT["optional-dependencies"].items() if k not in OURS}
    wanted = [*PROJECT["dependencies"], *itertools.chain.from_iterable(extras.values())]
    given = {_name(re.split(r"[^\w.-]", one)[0]) for one in wanted}
    given |= {"starlette", "referencing"}  # FastAPI and jsonschema are made of them
    missing = {}
    for path in sorted((ROOT / "app").rglob("*.py")):
        for module in _modules(path) - sys.stdlib_module_names:
            if not given & {_name(one) for one in of_module.get(module, [module])}:
                missing[module] = path.name
    assert not missing


def _name(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()


def _modules(path: Path) -> set[str]:
    """The top-level modules that a file imports from elsewhere."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {one.name.partition(".")[0] for one in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add(str(node.module).partition(".")[0])
    return found


OURS = ("dev",)  # extras for those who work on the proxy
GROUPS = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]


def test_the_changelog_can_be_released() -> None:
    """Sections as Keep a Changelog has them: what is unreleased first, then versions with dates."""
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    first, *released = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert first == "Unreleased"
    assert all(re.fullmatch(r"\d+\.\d+\.\d+ - \d{4}-\d\d-\d\d", one) for one in released)
    for section in text.split("\n## ")[1:]:
        groups = re.findall(r"^### (.+)$", section, re.MULTILINE)
        assert groups == [group for group in GROUPS if group in groups]
    versions = [tuple(map(int, one.partition(" ")[0].split("."))) for one in released]
    assert versions == sorted(set(versions), reverse=True)
    ours = tuple(map(int, PROJECT["version"].split(".")))
    assert not versions or versions[0] <= ours
