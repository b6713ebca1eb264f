"""The table of clients: the variables, flags or file that make each ask this proxy. No I/O.

:func:`setup` works out what any client must know of a proxy (a :class:`Setup`); a :class:`Client`'s
functions turn that into the client's own variables, flags or settings. None of them holds a key:
``Client.key`` names the variables that take it.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import yaml
from msgspec import Struct

from ...escalation.tiers import named_tier
from ...settings import Settings

Json = dict[str, Any]
OURS = "mlx-stack"  # the provider's name in clients' settings
ANY_KEY = "local"  # the key to send where the proxy accepts any
# In tokens. Below it Claude Code gets CLAUDE_CODE_SIMPLE: it keeps 13,000 and a reply free, and in
# a window of 32,768 it would otherwise compact after each turn (docs/agents.md).
SMALL_WINDOW = 49_152
REPLY_SHARE = 4  # a reply may take a quarter of the window: clients keep that much free


class Setup(Struct, frozen=True):
    """What any client has to know of the proxy."""

    url: str  # without /v1
    model: str  # the tier or alias to ask for
    windows: Mapping[str, int]  # context windows in tokens, by the names that clients may ask for
    longest_reply: int  # tokens
    key_variable: str  # the environment variable that holds the key; "": the proxy accepts any

    @property
    def window(self) -> int:
        return self.windows[self.model]

    def reply(self, model: str) -> int:
        return min(self.windows[model] // REPLY_SHARE, self.longest_reply)


def setup(settings: Settings, url: str, model: str, key_variable: str) -> Setup | None:
    """Return what clients need to ask for ``model``; None if neither tier nor alias has that name.

    Of the other tiers only local ones get a window: the cloud is asked only if ``model`` names it.
    """
    tier = named_tier(model, settings)
    if tier is None:
        return None
    windows = {model: settings.tiers[tier].context_window}
    for name in settings.reliability.escalation.chain:
        if settings.tiers[name].local:
            windows.setdefault(name, settings.tiers[name].context_window)
    longest = settings.reliability.token_budget.max_output_tokens
    return Setup(url, model, windows, longest, key_variable)


class Client(Struct, frozen=True):
    """A row of the table.

    A client without a ``program`` is only printed, as its ``pasted`` text if it has one.
    """

    name: str
    title: str
    protocol: str
    program: str = ""  # its command
    install: str = ""  # how to get that
    prompt_tokens: int = 0  # of its first request, as the proxy estimates them
    variables: Callable[[Setup], Mapping[str, str]] = lambda _: {}
    key: tuple[str, ...] = ()  # the variables that take the key
    flags: Callable[[Setup], Sequence[str]] = lambda _: ()
    launch_flags: Callable[[Setup], Sequence[str]] = lambda _: ()  # what only `launch` adds
    pasted: Callable[[Setup], str] | None = None  # lines for `place`, in place of variables
    place: str = ""  # where those lines go
    says: str = ""  # a further remark for the user


def _claude_variables(proxy: Setup) -> dict[str, str]:
    models = ("OPUS", "SONNET", "HAIKU")
    return {
        "ANTHROPIC_BASE_URL": proxy.url,
        "ANTHROPIC_MODEL": proxy.model,
        **{f"ANTHROPIC_DEFAULT_{name}_MODEL": proxy.model for name in models},
        "CLAUDE_CODE_MAX_CONTEXT_TOKENS": str(proxy.window),
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(proxy.reply(proxy.model)),
        "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        **({"CLAUDE_CODE_SIMPLE": "1"} if proxy.window < SMALL_WINDOW else {}),
        # Empty: a key for Anthropic's servers must not go to ours, nor a request past us.
        "ANTHROPIC_API_KEY": "",
        "CLAUDE_CODE_USE_BEDROCK": "",
        "CLAUDE_CODE_USE_VERTEX": "",
    }


def _claude_settings(proxy: Setup) -> Sequence[str]:
    """Give the variables once more: those of the user's own settings.json are the stronger ones.

    A key there is another server's, and must not come to ours: Claude Code gets our variable's.
    """
    variables = {**_claude_variables(proxy), "ANTHROPIC_AUTH_TOKEN": ANY_KEY}
    settings: Json = {"env": variables}
    if proxy.key_variable:
        variables["ANTHROPIC_AUTH_TOKEN"] = ""
        settings["apiKeyHelper"] = f"printenv {shlex.quote(proxy.key_variable)}"
    return "--settings", json.dumps(settings)


def _codex_flags(proxy: Setup) -> Sequence[str]:
    provider = f"model_providers.{OURS}"
    values = {
        "model": proxy.model,
        "model_provider": OURS,
        "model_context_window": proxy.window,
        f"{provider}.name": OURS,
        f"{provider}.base_url": f"{proxy.url}/v1",
        f"{provider}.wire_api": "responses",
        **({f"{provider}.env_key": proxy.key_variable} if proxy.key_variable else {}),
    }
    # JSON's strings and numbers are TOML's, too.
    return [word for key, value in values.items() for word in ("-c", f"{key}={json.dumps(value)}")]


def _opencode_variables(proxy: Setup) -> Mapping[str, str]:
    key = f"{{env:{proxy.key_variable}}}" if proxy.key_variable else ANY_KEY
    model = f"{OURS}/{proxy.model}"
    limits = {
        name: {"name": name, "limit": {"context": window, "output": proxy.reply(name)}}
        for name, window in proxy.windows.items()
    }
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": OURS,
        "options": {"baseURL": f"{proxy.url}/v1", "apiKey": key},
        "models": limits,
    }
    settings = {"model": model, "small_model": model, "provider": {OURS: provider}}
    return {"OPENCODE_CONFIG_CONTENT": json.dumps(settings)}


def _continue_file(proxy: Setup) -> str:
    key = f"${{{{ secrets.{proxy.key_variable} }}}}" if proxy.key_variable else ANY_KEY
    models = [
        {
            "name": name,
            "provider": "openai",
            "model": name,
            "apiBase": f"{proxy.url}/v1",
            "apiKey": key,
            "roles": ["chat", "edit", "apply"],
            "capabilities": ["tool_use"],
            "defaultCompletionOptions": {"contextLength": window, "maxTokens": proxy.reply(name)},
        }
        for name, window in proxy.windows.items()
    ]
    settings = {"name": OURS, "version": "0.0.1", "schema": "v1", "models": models}
    return str(yaml.safe_dump(settings, sort_keys=False, width=100))


def _cline_file(proxy: Setup) -> str:
    settings = {
        "provider": "openai-compatible",
        "apiKey": f"(the value of {proxy.key_variable})" if proxy.key_variable else ANY_KEY,
        "model": proxy.model,
        "baseUrl": f"{proxy.url}/v1",
    }
    name = settings["provider"]
    # Cline refuses an entry without a time.
    entry = {"settings": settings, "updatedAt": "2026-01-01T00:00:00.000Z", "tokenSource": "manual"}
    file = {"version": 1, "lastUsedProvider": name, "modes": {}, "providers": {name: entry}}
    return json.dumps(file, indent=2) + "\n"


CLIENTS = (
    Client(
        name="claude-code",
        title="Claude Code",
        protocol="Messages",
        program="claude",
        install="npm install -g @anthropic-ai/claude-code",
        prompt_tokens=1_200,
        variables=_claude_variables,
        key=("ANTHROPIC_AUTH_TOKEN",),
        launch_flags=_claude_settings,
        says="Its web search runs on Anthropic's servers and is refused.",
    ),
    Client(
        name="codex",
        title="Codex",
        protocol="Responses",
        program="codex",
        install="npm install -g @openai/codex",
        prompt_tokens=13_000,
        flags=_codex_flags,
    ),
    Client(
        name="opencode",
        title="opencode",
        protocol="chat completions",
        program="opencode",
        install="npm install -g opencode-ai",
        prompt_tokens=8_700,
        variables=_opencode_variables,
        says="`npm` may also be @ai-sdk/anthropic (Messages) or @ai-sdk/openai (Responses).",
    ),
    Client(
        name="qwen-code",
        title="Qwen Code",
        protocol="chat completions",
        program="qwen",
        install="npm install -g @qwen-code/qwen-code",
        prompt_tokens=18_900,
        variables=lambda proxy: {"OPENAI_BASE_URL": f"{proxy.url}/v1"},
        key=("OPENAI_API_KEY",),
        flags=lambda proxy: ("--auth-type", "openai", "--model", proxy.model),
        says="It reads the window only from model.generationConfig.contextWindowSize in its file.",
    ),
    Client(
        name="aider",
        title="aider",
        protocol="chat completions",
        program="aider",
        install="pipx install aider-chat",
        variables=lambda proxy: {
            "AIDER_MODEL": f"openai/{proxy.model}",
            "AIDER_WEAK_MODEL": f"openai/{proxy.model}",
            "AIDER_SHOW_MODEL_WARNINGS": "false",
            "AIDER_OPENAI_API_BASE": f"{proxy.url}/v1",
        },
        key=("AIDER_OPENAI_API_KEY",),
    ),
    Client(
        name="continue",
        title="Continue",
        protocol="chat completions",
        pasted=_continue_file,
        place="~/.continue/config.yaml",
        says="`provider` may also be anthropic (Messages), with the same apiBase.",
    ),
    Client(
        name="cline",
        title="Cline",
        protocol="chat completions",
        pasted=_cline_file,
        place="~/.cline/data/settings/providers.json",
        says="In VS Code: API provider OpenAI Compatible, with the same values.",
    ),
    Client(
        name="openai",
        title="OpenAI's SDK, and everything built on it",
        protocol="chat completions",
        variables=lambda proxy: {"OPENAI_BASE_URL": f"{proxy.url}/v1"},
        key=("OPENAI_API_KEY",),
    ),
)
