"""The chat template, rendered as the model servers do it (needs jinja2)."""

import json
from pathlib import Path
from typing import Any

from jinja2.sandbox import ImmutableSandboxedEnvironment

SOURCE = Path(__file__).with_name("chat_template.jinja").read_text(encoding="utf-8")


def _tojson(value: Any, **options: Any) -> str:
    return json.dumps(value, ensure_ascii=False, **options)


def _compile() -> Any:
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = _tojson
    return environment.from_string(SOURCE)


_TEMPLATE = _compile()


def render(
    messages: list[dict[str, Any]],
    tools: list[dict[str, Any]] | None = None,
    add_generation_prompt: bool = True,
) -> str:
    text: str = _TEMPLATE.render(
        messages=messages, tools=tools, add_generation_prompt=add_generation_prompt
    )
    return text
