"""The frameworks: where each is on the page, what plays the model, and what must come of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.frameworks.scripted import Json, Say, Turn, Use, results_in
from mlx_stack_proxy.wire.delta import text_of

# What only the tool knows: a model that made the answer up would not have it.
FACTS = ("129.5", "EUR", "shipped")
ANSWER = "Order A-1043: 129.5 EUR, shipped, customer C-77."
LOOK_UP = Use("get_order", {"order_id": "A-1043"})


def answered(said: str, _home: Path) -> bool:
    return all(fact in said for fact in FACTS)


def observations(body: Json) -> int:
    """The results of a framework that tells them as the user's words."""
    return sum(
        message["role"] == "user" and text_of(message["content"]).startswith("Observation:")
        for message in body.get("messages", ())
    )


def wrote_the_note(_said: str, home: Path) -> bool:
    return any(note.read_text().strip() == "done" for note in home.glob("*/note.txt"))


@dataclass(frozen=True)
class Framework:
    """`title`: its section on the page; `package`: what its version is read from.

    `turns`: what a scripted model says. `demo`: whether the demo tiers can follow its prompts;
    `results`: how many tool results a request of its has.
    `right`: whether what it said, and what it left in its folder, is the task done.
    """

    title: str
    folder: str
    package: str
    turns: Sequence[Turn] = (LOOK_UP, Say(ANSWER))
    demo: bool = True
    results: Callable[[Json], int] = results_in
    right: Callable[[str, Path], bool] = answered
    seconds: float = 300.0


DONE = Say("I have written it into note.txt.")


def coding(title: str, package: str, turns: Sequence[Turn]) -> Framework:
    """An agent that edits files; its prompt alone is more than the demo tiers were made for."""
    return Framework(title, title.lower(), package, turns, demo=False, right=wrote_the_note)


FRAMEWORKS = [
    Framework("The OpenAI SDK", "openai-sdk", "openai"),
    Framework("CrewAI", "crewai", "crewai"),
    Framework("LangGraph", "langgraph", "langgraph"),
    Framework("OpenAI Agents SDK", "openai-agents", "openai-agents"),
    Framework(
        "smolagents",
        "smolagents",
        "smolagents",
        (LOOK_UP, Use("final_answer", {"answer": ANSWER})),
        results=observations,
        demo=False,  # its last word is a call of a tool, which they don't know
    ),
    Framework("Pydantic AI", "pydantic-ai", "pydantic-ai-slim"),
    coding(
        "opencode", "opencode-ai", (Use("write", {"filePath": "note.txt", "content": "done"}), DONE)
    ),
    coding("aider", "aider-chat", (Say("note.txt\n```\ndone\n```"),)),
    coding("Cline", "cline", (Use("editor", {"path": "note.txt", "new_text": "done"}), DONE)),
]
