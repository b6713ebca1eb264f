"""Choose the tiers that ``up`` starts, and their models."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from ...setting_types import TIER_NAME
from ...settings import DEFAULT_TIERS
from .. import CommandError, deploy_path

DEMO_TIERS = ("fast", "standard")
_ORDER = list(DEFAULT_TIERS)  # of the chain; tiers with other names come after these
_HUGGING_FACE_ID = re.compile(r"^[A-Za-z0-9][\w.-]*/[\w.-]+$")
# `auto` is not a tier for the proxy; the others are names of children, which name log files.
_RESERVED = ("auto", "litellm", "proxy")


class LocalTier(Struct, frozen=True):
    """A tier and the model that one ``mlx_lm.server`` serves for it."""

    name: str
    model: str  # what `mlx_lm.server --model` gets: an absolute path, or a Hugging Face id
    port: int
    is_path: bool  # whether `model` is a path
    context_window: int | None = None  # as the model's own files say, if they are on this machine

    @property
    def is_demo(self) -> bool:
        """Whether a demo model serves it, which knows only the tools of the demo's questions."""
        return self.is_path and Path(self.model) in map(demo_model, DEMO_TIERS)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def demo_model(name: str) -> Path | None:
    """Return the folder of the demo model that the project ships for a tier, if it exists."""
    folder = deploy_path(f"local/models/{name}").resolve()
    return folder if (folder / "config.json").is_file() else None


def chosen_tiers(options: Sequence[str], first_port: int) -> list[LocalTier]:
    """Return the tiers in the chain's order: the demo tiers, changed by each ``NAME=MODEL``.

    ``NAME=`` leaves a tier out. The tiers' ports count up from ``first_port``. Raises
    :class:`CommandError`.
    """
    models: dict[str, str | None] = dict.fromkeys(DEMO_TIERS)  # None: its demo model
    for text in options:
        name, equals, model = text.partition("=")
        if not equals or not re.fullmatch(TIER_NAME, name):
            raise CommandError(f"--tier {text}: give it as NAME=MODEL, for example fast=./my-model")
        if name in _RESERVED:
            raise CommandError(f"--tier {text}: `{name}` can't be a tier's name")
        models[name] = model
    served = [(name, model) for name, model in models.items() if model != ""]
    if not served:
        raise CommandError("no tier is left to start: give one as --tier NAME=MODEL")
    served.sort(key=lambda tier: _ORDER.index(tier[0]) if tier[0] in _ORDER else len(_ORDER))
    return [_tier(*tier, port) for port, tier in enumerate(served, first_port)]


def _tier(name: str, model: str | None, port: int) -> LocalTier:
    if model is None and (demo := demo_model(name)) is None:
        raise CommandError(
            f"the demo model for `{name}` isn't here: give one as --tier {name}=MODEL "
            "(a folder, or a Hugging Face id such as mlx-community/Qwen3-4B-4bit)"
        )
    model = str(demo) if model is None else model
    path, option = Path(model).expanduser(), f"--tier {name}={model}"
    if not path.is_dir():
        if not _HUGGING_FACE_ID.match(model) or model.startswith((".", "~")):
            raise CommandError(f"{option}: no such folder, and no Hugging Face id")
        return LocalTier(name, model, port, False)
    try:
        config = json.loads((path / "config.json").read_text(encoding="utf-8"))
        parts = (config, config.get("text_config") or {})
        windows = [part.get("max_position_embeddings") for part in parts]
    except FileNotFoundError:
        raise CommandError(f"{option}: that folder holds no model (no config.json)") from None
    except (OSError, ValueError, AttributeError):
        windows = []
    window = next((value for value in windows if isinstance(value, int) and value > 0), None)
    return LocalTier(name, str(path.resolve()), port, True, window)
