"""Choose the tiers that ``up`` starts, and their models."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from ...frozen import frozen
from ...setting_types import TIER_NAME
from ...settings import DEFAULT_TIERS
from .. import CommandError, deploy_path

# The order of the chain; tiers with other names come after these.
KNOWN_ORDER = tuple(DEFAULT_TIERS)
DEMO_TIERS = ("fast", "standard")

_HUGGING_FACE_ID = re.compile(r"^[A-Za-z0-9][\w.-]*/[\w.-]+$")
# `auto` is not a tier for the proxy; the others are names of children, which name log files.
_RESERVED = ("auto", "litellm", "proxy")


@frozen
class LocalTier:
    """A tier and the model that one ``mlx_lm.server`` serves for it."""

    name: str
    model: str
    """What `mlx_lm.server --model` gets: an absolute path, or a Hugging Face id."""
    port: int
    is_path: bool  # whether `model` is a path
    context_window: int | None = None
    """From the model's own configuration, where that is on this machine."""

    @property
    def is_demo(self) -> bool:
        """Whether a demo model serves it, which knows only the tools of the demo's questions."""
        return self.is_path and Path(self.model) in map(demo_model, DEMO_TIERS)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def health_url(self) -> str:
        return f"{self.base_url}/health"


def demo_model(name: str) -> Path | None:
    """Return the folder of the demo model that the project ships for a tier, if it is there."""
    folder = deploy_path(f"local/models/{name}").resolve()
    return folder if (folder / "config.json").is_file() else None


def chosen_tiers(options: Sequence[str], first_port: int) -> list[LocalTier]:
    """Return the tiers in the chain's order: the demo tiers, changed by each ``NAME=MODEL``.

    ``NAME=`` leaves a tier out. The tiers' ports count up from ``first_port``. Raises
    :class:`CommandError`.
    """
    models: dict[str, str] = dict.fromkeys(DEMO_TIERS, "")
    enabled = set(DEMO_TIERS)
    for text in options:
        name, equals, model = text.partition("=")
        if not equals or not re.fullmatch(TIER_NAME, name):
            raise CommandError(f"--tier {text}: give it as NAME=MODEL, for example fast=./my-model")
        if name in _RESERVED:
            raise CommandError(f"--tier {text}: `{name}` can't be a tier's name")
        models[name] = model
        (enabled.add if model else enabled.discard)(name)
    names = sorted((n for n in models if n in enabled), key=_place)
    if not names:
        raise CommandError("no tier is left to start: give one as --tier NAME=MODEL")
    return [_tier(name, models[name], first_port + i) for i, name in enumerate(names)]


def _place(name: str) -> int:
    return KNOWN_ORDER.index(name) if name in KNOWN_ORDER else len(KNOWN_ORDER)


def _tier(name: str, model: str, port: int) -> LocalTier:
    if not model:
        demo = demo_model(name)
        if demo is None:
            raise CommandError(
                f"the demo model for `{name}` isn't here: give one as --tier {name}=MODEL "
                "(a folder, or a Hugging Face id such as mlx-community/Qwen3-4B-4bit)"
            )
        model = str(demo)
    path = Path(model).expanduser()
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise CommandError(
                f"--tier {name}={model}: that folder holds no model (no config.json)"
            )
        path = path.resolve()
        return LocalTier(name, str(path), port, True, _context_window(path))
    if not _HUGGING_FACE_ID.match(model) or model.startswith((".", "~")):
        raise CommandError(f"--tier {name}={model}: no such folder, and no Hugging Face id")
    return LocalTier(name, model, port, False)


def _context_window(model: Path) -> int | None:
    """Return the context window in tokens from a model's ``config.json``; None if it tells none."""
    try:
        config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(config, dict):
        return None
    inner = config.get("text_config")
    for part in (config, inner if isinstance(inner, dict) else {}):
        value = part.get("max_position_embeddings")
        if isinstance(value, int) and value > 0:
            return value
    return None
