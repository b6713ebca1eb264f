"""The ways of asking that are compared, and the parts of a whole run."""

from __future__ import annotations

from dataclasses import dataclass

SEED = 7
MORE_SEEDS = (8, 9, 10)


@dataclass(frozen=True)
class Column:
    """``first``: the tier that the agent names. Without a proxy LiteLLM is asked."""

    title: str
    first: str = "fast"
    proxied: bool = False


COLUMNS = {
    "a": Column("fast alone"),
    "b": Column("standard alone", "standard"),
    "c": Column("fast through the proxy", proxied=True),
}


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
    "main": [Part(key) for key in COLUMNS],
    "faults": [Part(key, faults=True) for key in COLUMNS],
    "seeds": [Part(key, seed) for seed in MORE_SEEDS for key in COLUMNS],
}
