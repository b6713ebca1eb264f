"""The ways of asking that are compared, the parts of a whole run, and which results are theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from benchmarks.records import PROXIED, Json, fingerprint

SEED = 7
MORE_SEEDS = (8, 9, 10)
# What decides about a result: after a change of it, older ones are of something else.
_OURS = [
    *(f"benchmarks/agents/{name}.py" for name in ("agent", "broken", "relay", "stack", "tasks")),
    "benchmarks/came.py",
    "app/mlx_stack_proxy/operator/local_stack/*.py",  # how LiteLLM and the servers start
    *("deploy/local/demo_tiers/*.py", "deploy/local/models/*/*.safetensors"),
]


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


def keys(about: Iterable[str]) -> Callable[[Part], Json]:
    """Return the key of a part's results. ``about``: the server and its models."""
    about = list(about)
    codes = {
        key: fingerprint([*about, column.first], [*_OURS, *(PROXIED if column.proxied else ())])
        for key, column in COLUMNS.items()
    }
    return lambda part: {"code": codes[part.column], **vars(part)}
