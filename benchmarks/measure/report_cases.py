"""What the users of public reports wanted, and servers that only a function describes.

``WANTED`` has a row for each case of ``reports.jsonl`` whose report says so in prose alone;
``SERVERS`` plays the upstreams of which the corpus has no reply. Both go by the case's name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import permutations
from typing import Any, Final

from benchmarks.records import Json

Calls = tuple[tuple[str, Json], ...]


@dataclass(frozen=True)
class Wanted:
    """What is to come out when a server gives its reply each time it is asked.

    Where only the first reply is bad, the good one that follows it is right, too.
    """

    text: str | None = ""  # None: any
    calls: Calls = ()
    only_again: bool = False  # nothing but the good reply is right
    error: bool = False  # an honest error is right
    counts: bool = False  # the usage must be one that can be true
    seconds: float = 5.0  # in which all must have come


def _calls(name: str, **arguments: Any) -> Wanted:
    return Wanted(calls=((name, arguments),))


FINE: Final = Wanted("fine")
_THREE_LINES: Final = Wanted("It has three lines.")
_FILE: Final = _calls("read_file", path="src/main.go")
_PARIS: Final = _calls("get_weather", city="Paris")
_SAN_FRANCISCO: Final = _calls("get_weather", city="San Francisco")
_CUT: Final = Wanted(only_again=True)
WANTED: Final[Mapping[str, Wanted]] = {
    **dict.fromkeys(
        (
            *(f"clamp-{name}" for name in ("kon91", "kilo9414", "hive1629", "vllm42474")),
            "clamp-nothing-asked",
            "lmstudio2220",
            "llamacpp27367-chat",
        ),
        FINE,
    ),
    **dict.fromkeys((f"ctx-vllm-output-{d}" for d in ("chat", "messages", "responses")), _CUT),
    "trtllm9256": _calls("grep", path="/", name_pattern="*Chen*"),
    **dict.fromkeys(
        (f"mlxlm875-final-{d}" for d in ("chat", "messages", "responses")), _THREE_LINES
    ),
    "harmony-full-final": Wanted("four"),
    "mlxlm875-call": _calls("read_file", path="a"),
    "halogen84-A": _CUT,
    **dict.fromkeys(("halogen84-think", "halogen84-B", "halogen84-B-resp"), _FILE),
    "mlxlm1262": _PARIS,
    "mlxlm1262-fin": _PARIS,
    "spark196": _calls("bash", command="cd lfs-build && ls -la"),
    **dict.fromkeys(("spark196-path", "spark196-invoke", "spark196-glm"), _FILE),
    "openclaw88940-valid": _calls("read_file", path=r"C:\temp\new\build\report.txt"),
    "openclaw88940": _calls("read_file", path=r"C:\Users\foo\new\bar.txt"),
    **dict.fromkeys(
        ("vllm49955", "moltis305", "moltis305-notools"), Wanted("The file has three lines.")
    ),
    "vllm43104": _SAN_FRANCISCO,
    "vllm43104-fence": _SAN_FRANCISCO,
    "exo1882": _PARIS,
    "exo1882-b": _PARIS,
    "sglang23071-split": _calls("bash", command="ls"),
    "sglang23071": _calls("bash", command="pytest | head -100", description="Run tests"),
    "letta3508": Wanted("Hello, here is a long enough reply.", counts=True),
    "cline13348-both": _calls("calc", expr="6*7"),
    "cline13348-env": Wanted("Done."),
    "vllmmlx101": Wanted("Hello there."),
    "vllmmlx101-tools": Wanted(None),
    "vllmmlx101-tools-call": _calls("read_file", path="a"),
    "vllmmlx628": Wanted("Hello there."),
    "vllmmlx672": _PARIS,
    "goose9640": _CUT,
    "zed51180": _CUT,
    "mistralvibe594-null": _calls("write_file", path="a", content="demo"),
    "mistralvibe594-text": _calls("write_file", path="a/test.txt", content="demo"),
    "opencode39968-text": Wanted(None, error=True),
}

# Servers as functions of the request: a status and an error's sentence, or None: it says `fine`.
Server = Callable[[Json], "tuple[int, str] | None"]


def _window(size: int) -> Server:
    """A vLLM with so many tokens for prompt and output; a word is a token."""

    def answer(body: Json) -> tuple[int, str] | None:
        read, most = len(str(body["messages"]).split()), body.get("max_tokens", 16)
        if read + most <= size:
            return None
        return 400, (
            f"This model's maximum context length is {size} tokens. However, you requested {most} "
            f"output tokens and your prompt contains at least {read} input tokens, for a total of "
            f"at least {read + most} tokens. Please reduce the length of the input prompt or the "
            "number of requested output tokens. (parameter=input_tokens)"
        )

    return answer


def _grammar(body: Json) -> tuple[int, str] | None:
    if body["model"] != "fast":
        return None
    return 400, "Failed to initialize samplers: failed to parse grammar"


def _strict_template(body: Json) -> tuple[int, str] | None:
    if all(message["role"] not in ("system", "developer") for message in body["messages"][1:]):
        return None
    return 500, "Jinja Exception: System message must be at the beginning."


def _only_texts(body: Json) -> tuple[int, str] | None:
    parts = (m["content"] for m in body["messages"] if isinstance(m.get("content"), list))
    odd = [part["type"] for content in parts for part in content if part["type"] != "text"]
    return (400, f"unknown content type {odd[0]}") if odd else None


def _keeps_reasoning(body: Json) -> tuple[int, str] | None:
    return None if "I read it" in json.dumps(body["messages"]) else (500, "no reasoning came")


SERVERS: Final[Mapping[str, Server]] = {
    "clamp-kon91": _window(49_152),
    "clamp-kilo9414": _window(49_152),
    "clamp-hive1629": _window(8_192),
    "clamp-vllm42474": _window(49_152),
    "clamp-nothing-asked": _window(16_384),
    "lmstudio2220": _grammar,
    "llamacpp27367-chat": _strict_template,
    "qwen38-244-msg": _strict_template,
    "lmstudio2298-resp": _strict_template,
    "litellm22997": _only_texts,
    "goose7363-chat": _keeps_reasoning,
    "goose7363-msg": _keeps_reasoning,
}
# The corpus shortens long prompts: words, each a token, and what the client asks to be written.
PROMPTS: Final[Mapping[str, tuple[int, int | None]]] = {
    "clamp-kon91": (37_000, 16_384),
    "clamp-kilo9414": (20_000, 32_000),
    "clamp-hive1629": (1_500, 32_000),
    "clamp-vllm42474": (40_000, 16_384),
    "clamp-nothing-asked": (3_700, None),
}
ZERO: Final = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
USAGES: Final[Mapping[str, Json]] = {"letta3508": ZERO}


def _in_changing_order() -> str:
    """Sentences of three frames and five words, 8,400 characters, no lap like another."""
    things = ("schema.sql", "schema", ".env", "Dockerfile", "README")
    laps = (
        f"I'll write the {a} to rpg-manager-app/backend.\n\nWait, I'll also write the {b} for the "
        f"backend.\n\nActually, I'll write the {c}.\n\n"
        for a, b, c in permutations(things, 3)
    )
    return "".join(laps)[:8_400]


_LAP: Final = (
    "Let me verify it's running and create the documentation: Let me verify that it is running, "
    "then write the documentation: Let me check the service and then create the documentation: "
    "Let me check the service and then create the documentation: Let me verify the service is "
    "running and create the docs: Let me verify it's running and create the documentation: "
)
TEXTS: Final[Mapping[str, str]] = {"goose9640": _in_changing_order(), "zed51180": _LAP * 12}
