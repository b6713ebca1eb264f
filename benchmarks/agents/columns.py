"""The ways of asking that are compared, and the parts of a whole run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

SEED = 7
MORE_SEEDS = (8, 9, 10)


@dataclass(frozen=True)
class Column:
    """``first``: the tier that the agent names. ``changes``: of the proxy's settings, dotted keys;
    None: LiteLLM is asked, without the proxy."""

    key: str
    title: str
    first: str = "fast"
    changes: Mapping[str, Any] | None = field(default_factory=dict)


COLUMNS = {
    one.key: one
    for one in (
        Column("a", "fast alone", changes=None),
        Column("b", "standard alone", "standard", None),
        Column("c", "fast through the proxy"),
        Column("c-repair", "without repair", changes={"tool_validation.repair": "off"}),
        Column("c-rescue", "without rescue", changes={"tool_validation.rescue_text_calls": False}),
        Column(
            "c-retry",
            "without retry",
            changes={
                "tool_validation.max_retries": 0,
                "escalation.max_retries_before_escalate": 0,
            },
        ),
        Column("c-loops", "without loop detection", changes={"loop_detection.enabled": False}),
        Column("c-escalation", "without escalation", changes={"escalation.enabled": False}),
        Column(
            "c-second",
            "without second opinions on loops",
            changes={"loop_detection.second_opinion": False},
        ),
    )
}
MAIN = ("a", "b", "c")
ABLATIONS = tuple(key for key in COLUMNS if key.startswith("c-"))


@dataclass(frozen=True)
class Part:
    """One column with one seed. Parts with faults have their own results."""

    column: str
    seed: int = SEED
    faults: bool = False

    @property
    def name(self) -> str:
        return f"{self.column} seed {self.seed}{' with faults' if self.faults else ''}"


GROUPS = {
    "main": [Part(key) for key in MAIN],
    "faults": [Part(key, faults=True) for key in MAIN],
    "seeds": [Part(key, seed) for seed in MORE_SEEDS for key in MAIN],
    "ablations": [Part(key) for key in ABLATIONS],
}
