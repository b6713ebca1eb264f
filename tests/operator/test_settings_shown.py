"""Every setting that is in force, with where it comes from, and no secret."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from mlx_stack_proxy.operator import settings_shown
from mlx_stack_proxy.settings import Settings
from mlx_stack_proxy.settings_source import from_mapping, read


def shown(folder: Path, text: str, environ: Mapping[str, str] | None = None) -> list[str]:
    file = folder / "c.yaml"
    file.write_text(text, encoding="utf-8")
    sources = read(str(file), environ or {})
    return list(settings_shown.lines(sources.settings(), sources))


def below(lines: list[str], section: str) -> list[str]:
    start = lines.index(section) + 1
    end = next((n for n, line in enumerate(lines[start:], start) if line[0] != " "), len(lines))
    return lines[start:end]


def test_where_each_comes_from(tmp_path: Path) -> None:
    lines = shown(
        tmp_path,
        "server: {port: 1, host: localhost}\nupstream: {api_key_env: }\n"
        "tiers: {a: {idle_timeout: 3}, b: }",
        {"MLX_STACK_SERVER__PORT": "2", "MLX_STACK_TIERS__A__MODEL": "m"},
    )
    assert lines[0] == f"# file: {tmp_path}/c.yaml; env: MLX_STACK_… variables"
    assert below(lines, "server")[:3] == [
        "  file     host: localhost",
        "  env      port: 2",
        "  default  allowed_hosts: []",
    ]
    upstream = below(lines, "upstream")
    assert "  default  stream: always" in upstream
    assert any(line.startswith("  file     api_key_env:") for line in upstream)
    first, second = below(lines, "tiers.a"), below(lines, "tiers.b")
    assert "  env      model: m" in first and "  file     idle_timeout: 3" in first
    assert "  default  model: b" in second
    assert "  file     chain: [a, b]" in below(lines, "reliability.escalation")


def test_without_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sources = read(None, {})
    lines = list(settings_shown.lines(sources.settings(), sources))
    assert lines[0].startswith("# no file;")
    assert all(line.startswith("  default ") for line in lines[1:] if line.startswith("  d"))
    assert not any(line.startswith(("  file", "  env ")) for line in lines)


def test_all_of_them_are_there_and_fit_a_terminal(tmp_path: Path) -> None:
    lines = shown(tmp_path, "{}")
    assert all(len(line) <= 80 for line in lines[1:])  # the file's path is as long as it is
    found: dict[str, object] = {}
    section = ""
    text = "\n".join(lines[1:]).replace("\n             ", " ")
    for line in text.splitlines():
        if line[0] != " ":
            section = line
            continue
        for key, value in yaml.safe_load(line[11:]).items():
            found[f"{section}.{key}"] = value
    expected: dict[str, object] = {}

    def walk(data: object, path: str) -> None:
        if isinstance(data, dict) and data:
            for key, value in data.items():
                walk(value, f"{path}.{key}" if path else key)
        else:
            expected[path] = data

    walk(TypeAdapter(Settings).dump_python(from_mapping({}), mode="json"), "")
    assert found == expected


def test_secrets_are_not_shown(tmp_path: Path) -> None:
    lines = shown(
        tmp_path,
        """
server: {api_keys: [sk-one, sk-two], admin_key: sk-three}
upstream: {base_url: "http://user:sk-four@h:1"}
reliability: {token_budget: {per_key: {sk-five: {per_hour: 7}}}}
state: {backend: redis, redis_url: "redis://:sk-six@h:1/0"}
observability: {notify: {url: "https://hooks/sk-seven"}}
""",
    )
    text = "\n".join(lines)
    assert "sk-" not in text
    assert "  file     api_keys: […, …]" in lines
    assert "  file     admin_key: …" in lines
    assert "  file     base_url: 'http://…@h:1'" in lines
    assert "  file     per_key: {…1: {per_hour: 7}}" in lines
    assert "  file     redis_url: 'redis://…@h:1/0'" in lines


@given(st.one_of(st.text(), st.lists(st.text()), st.floats(allow_nan=False), st.booleans()))
def test_a_value_is_one_line_of_yaml(value: object) -> None:
    text = settings_shown.as_yaml(value)
    assert len(text.splitlines()) <= 1
    assert yaml.safe_load(f"a: {text}  # comment") == {"a": value}
