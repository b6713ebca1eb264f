"""The table of clients: which settings each needs, and which file it reads them from. No I/O.

:func:`setup` works out what any client must know of a configuration (a :class:`Setup`); a
:class:`Client`'s functions turn that into the client's own settings or environment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from ...escalation.tiers import AUTO, named_tier
from ...frozen import frozen
from ...local_address import local_url
from ...settings import Settings

Json = dict[str, Any]
Form = Literal["json", "toml", "yaml"]
OURS = "mlx-stack"  # the provider's name in clients' settings
ANY_KEY = "local"  # the key to send where the proxy accepts any
# In tokens. Claude Code's first request has some 12,000 (1,000 with CLAUDE_CODE_SIMPLE), and Claude
# Code keeps 13,000 and a reply free. In a window of 32,768 it would compact after each turn
# (docs/agents.md).
SMALL_WINDOW = 49_152
REPLY_SHARE = 4  # a reply may take a quarter of the window: clients keep that much free


@frozen
class Setup:
    """What any client has to know of the proxy."""

    url: str  # without /v1
    model: str  # the tier or alias to ask for
    windows: Mapping[str, int]  # context windows in tokens, by the names that clients may ask for
    longest_reply: int  # tokens
    key_variable: str  # the environment variable that holds the key; "": the proxy accepts any

    @property
    def window(self) -> int:
        return self.windows[self.model]

    @property
    def shell_key(self) -> str:
        return f"${{{self.key_variable}:-{ANY_KEY}}}" if self.key_variable else ANY_KEY

    def reply(self, model: str) -> int:
        return min(self.windows[model] // REPLY_SHARE, self.longest_reply)


def setup(settings: Settings, model: str = AUTO) -> Setup | None:
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
    return Setup(local_url(settings), model, windows, longest, _key_variable(settings))


def _key_variable(settings: Settings) -> str:
    keys = settings.server.api_keys
    if "*" in keys:
        return ""
    return "MLX_STACK_KEY" if keys else settings.upstream.api_key_env or ""


@frozen
class Client:
    """A row of the table. A client without ``shell`` and ``file`` takes all from ``start``."""

    name: str
    title: str
    protocol: str
    start: str  # the command that runs the client; a format string, with a Setup as `given`
    shell: Callable[[Setup], Mapping[str, str]] | None = None  # variables, if these are enough
    file: str = ""  # where the client reads its settings, relative to the home folder
    form: Form = "json"
    settings: Callable[[Setup], Json] | None = None  # the file's settings
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
    }


def _claude_shell(proxy: Setup) -> Mapping[str, str]:
    return {**_claude_variables(proxy), "ANTHROPIC_AUTH_TOKEN": proxy.shell_key}


def _claude_settings(proxy: Setup) -> Json:
    if proxy.key_variable:  # Claude Code's file expands no variables, but may name a command
        helper = f"printenv {proxy.key_variable} || echo {ANY_KEY}"
        return {"apiKeyHelper": helper, "env": _claude_variables(proxy)}
    return {"env": {**_claude_variables(proxy), "ANTHROPIC_AUTH_TOKEN": ANY_KEY}}


def _codex_settings(proxy: Setup) -> Json:
    provider = {"name": OURS, "base_url": f"{proxy.url}/v1", "wire_api": "responses"}
    if proxy.key_variable:
        provider["env_key"] = proxy.key_variable
    return {
        "model": proxy.model,
        "model_provider": OURS,
        "model_context_window": proxy.window,
        "model_providers": {OURS: provider},
    }


def _opencode_settings(proxy: Setup) -> Json:
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
    return {"model": model, "small_model": model, "provider": {OURS: provider}}


def _continue_settings(proxy: Setup) -> Json:
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
    return {"name": OURS, "version": "0.0.1", "schema": "v1", "models": models}


def _qwen_settings(proxy: Setup) -> Json:
    key = {} if proxy.key_variable else {"OPENAI_API_KEY": ANY_KEY}
    return {
        "security": {"auth": {"selectedType": "openai"}},
        "model": {"name": proxy.model, "generationConfig": {"contextWindowSize": proxy.window}},
        "env": {"OPENAI_BASE_URL": f"{proxy.url}/v1", **key},
    }


def _aider_settings(proxy: Setup) -> Json:
    model = f"openai/{proxy.model}"
    key = {} if proxy.key_variable else {"openai-api-key": ANY_KEY}
    return {
        "model": model,
        "weak-model": model,
        "show-model-warnings": False,
        "openai-api-base": f"{proxy.url}/v1",
        **key,
    }


def _openai_shell(proxy: Setup) -> Mapping[str, str]:
    return {"OPENAI_BASE_URL": f"{proxy.url}/v1", "OPENAI_API_KEY": proxy.shell_key}


_CLINE = 'cline auth -p openai-compatible -k "{given.shell_key}" -b {given.url}/v1 -m {given.model}'
CLIENTS = (
    Client(
        name="claude-code",
        title="Claude Code",
        protocol="Messages",
        start="claude",
        shell=_claude_shell,
        file=".claude/settings.json",
        settings=_claude_settings,
        says="Its web search runs at Anthropic and is refused.",
    ),
    Client(
        name="codex",
        title="Codex",
        protocol="Responses",
        start="codex",
        file=".codex/config.toml",
        form="toml",
        settings=_codex_settings,
        says="The lines belong at the head of the file, before its first table.",
    ),
    Client(
        name="opencode",
        title="opencode",
        protocol="chat completions",
        start="opencode",
        file=".config/opencode/opencode.json",
        settings=_opencode_settings,
        says="`npm` may also be @ai-sdk/anthropic (Messages) or @ai-sdk/openai (Responses).",
    ),
    Client(
        name="continue",
        title="Continue",
        protocol="chat completions",
        start="cn",
        file=".continue/config.yaml",
        form="yaml",
        settings=_continue_settings,
        says="`provider` may also be anthropic (Messages), with the same apiBase.",
    ),
    Client(
        name="qwen-code",
        title="Qwen Code",
        protocol="chat completions",
        start="qwen",
        file=".qwen/settings.json",
        settings=_qwen_settings,
        says="It takes the key from OPENAI_API_KEY.",
    ),
    Client(
        name="cline",
        title="Cline",
        protocol="chat completions",
        start=_CLINE,
        says="In VS Code: API provider OpenAI Compatible, with the same values.",
    ),
    Client(
        name="aider",
        title="aider",
        protocol="chat completions",
        start="aider",
        file=".aider.conf.yml",
        form="yaml",
        settings=_aider_settings,
        says="It takes the key from OPENAI_API_KEY.",
    ),
    Client(
        name="openai",
        title="OpenAI's SDK, and all that is built on it",
        protocol="chat completions",
        start="",
        shell=_openai_shell,
    ),
)
