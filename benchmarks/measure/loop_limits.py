"""What the limits on text that repeats are worth: honest files cut, and how far a loop gets.

    make limits
    make limits ARGS="--write benchmarks/loops.md"

Honest are the text files of Python's own library and of this environment, each as if a model wrote
it: as a reply's text without a fence, the strictest rules, and as the argument of a call. Loops are
pieces of the same files, over and over after what comes before them there. All is watched by the
real stage, at the defaults and with one limit changed at a time.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import statistics
import sys
import sysconfig
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import orjson

from benchmarks import machine, pages
from benchmarks.measure import score_loops
from mlx_stack_proxy.engine.verdicts import Verdict
from mlx_stack_proxy.loop_detection.generation.reply_watch import ReplyWatch
from mlx_stack_proxy.settings import (
    DEFAULT_TIERS,
    LoopDetectionSettings,
    Settings,
    TokenBudgetSettings,
)
from mlx_stack_proxy.wire.prompt_size import BYTES_PER_OUTPUT_TOKEN
from mlx_stack_proxy.wire.reply import Reply
from tests.support.deltas import call_delta, call_piece, text_delta, watched

MARKER = "limits"
KINDS = (
    *(".py", ".pyi", ".c", ".h", ".js", ".ts", ".css", ".html", ".svg", ".xml", ".sql", ".sh"),
    *(".json", ".yaml", ".yml", ".toml", ".cfg", ".ini", ".csv", ".md", ".rst", ".txt", ".tex"),
)
LEAST, MOST = 500, 100_000  # bytes of a file that is taken
VALUES: dict[str, Sequence[int]] = {
    "min_laps": (2, 3, 6, 8),
    "min_chars": (100, 200, 800, 1600),
    "max_trailing_whitespace": (32, 64, 128, 256, 1024),
}
LAPS = (8, 25, 80, 300, 1500)  # characters of what is said over and over
LOOPS = 40  # of each
PIECE = 16  # characters that come at once, where it matters when a loop is cut
ENDLESS = 6_000  # characters after which a loop is a miss, or 60 laps


class Loop(NamedTuple):
    """``lap``: what comes over and over, after ``before``."""

    before: str
    lap: str


def main() -> int:
    parser = machine.options("benchmarks.measure.loop_limits", __doc__, write=True)
    parser.add_argument("-n", type=int, default=1000, help="files of each kind, at most")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    rng = random.Random(given.seed)
    files = honest_files(given.n, rng)
    loops = made_up_loops([text for _, text in files], rng)
    pages.publish("benchmarks.measure.loop_limits", {MARKER: report(files, loops)}, given.write)
    return 0


# What is looked at


def honest_files(most: int, rng: random.Random) -> list[tuple[str, str]]:
    """The kind and the text of some files, ``most`` of a kind."""
    by_kind: dict[str, list[Path]] = {}
    for path in all_paths():
        by_kind.setdefault(path.suffix, []).append(path)
    found = []
    for kind, paths in sorted(by_kind.items()):
        for path in rng.sample(paths, min(len(paths), most)):
            with contextlib.suppress(UnicodeDecodeError):
                found.append((kind, path.read_text("utf-8")))
    return found


def all_paths() -> list[Path]:
    """Of all files of these kinds and sizes."""
    library, site = (Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib"))
    own = (path for path in library.rglob("*") if "site-packages" not in path.parts)
    return sorted(
        path
        for path in itertools.chain(own, site.rglob("*"))
        if path.suffix in KINDS and path.is_file() and LEAST < path.stat().st_size < MOST
    )


def made_up_loops(texts: Sequence[str], rng: random.Random) -> list[Loop]:
    """Pieces of texts that are said over and over, as many of each length."""
    loops = []
    for size in LAPS:
        long_enough = [text for text in texts if len(text) > 2 * size]
        made = 0
        while made < LOOPS:
            text = rng.choice(long_enough)
            at = rng.randrange(len(text) - size)
            lap = text[at : at + size]
            if lap.strip() and lap not in (lap + lap)[1:-1]:  # it does not repeat by itself
                loops.append(Loop(text[max(0, at - 300) : at], lap))
                made += 1
    return loops


# How it is watched


def _watch(rules: LoopDetectionSettings) -> ReplyWatch:
    return score_loops.watch(
        Settings(tiers=DEFAULT_TIERS, reliability={"loop_detection": rules})  # type: ignore[arg-type]
    )


def cuts_text(rules: LoopDetectionSettings, text: str) -> Verdict | None:
    """What is said of a file as a reply's text; how it is cut into pieces makes no difference."""
    return watched(_watch(rules).watch, Reply(), [text_delta(text)])


def cuts_argument(rules: LoopDetectionSettings, text: str) -> Verdict | None:
    """The same, as the argument of a call that writes it."""
    arguments = orjson.dumps({"path": "file", "content": text}).decode()
    return watched(
        _watch(rules).watch, Reply(), [call_delta(call_piece(arguments, "write_file", "call_1"))]
    )


def cut_after(rules: LoopDetectionSettings, loop: Loop) -> int | None:
    """So many characters of a loop come before it is cut; None: it never is."""
    watch, reply = _watch(rules), Reply()
    text = loop.before + loop.lap * max(60, ENDLESS // len(loop.lap) + 1)
    for at in range(0, len(text), PIECE):
        if watched(watch.watch, reply, [text_delta(text[at : at + PIECE])]) is not None:
            return max(0, min(at + PIECE, len(text)) - len(loop.before))
    return None


def variants() -> Iterator[tuple[str, LoopDetectionSettings]]:
    """The defaults, then each limit at other values."""
    default = LoopDetectionSettings()
    yield "the defaults", default
    for name, values in VALUES.items():
        for value in values:
            generation = replace(default.generation, **{name: value})
            yield f"`{name}: {value}`", LoopDetectionSettings(generation=generation)


# What is said of it


def report(files: Sequence[tuple[str, str]], loops: Sequence[Loop]) -> str:
    size = sum(len(text) for _, text in files)
    kinds = len({kind for kind, _ in files})
    limit = TokenBudgetSettings().max_output_tokens
    longer = sum(len(text.encode()) > limit * BYTES_PER_OUTPUT_TOKEN for _, text in files)
    said = (
        f"{len(files):,} files of {kinds} kinds, {size / 1e6:.0f} million characters; {LOOPS} loops"
        f" of each length. {longer / len(files):.1%} of the files are longer than "
        f"`max_output_tokens` ({limit:,})."
    )
    head = ["", "honest files cut", *(f"a loop of {lap:,} characters is cut after" for lap in LAPS)]
    rows = []
    for name, rules in variants():
        cut = Counter(
            kind for kind, text in files if cuts_text(rules, text) or cuts_argument(rules, text)
        )
        by_kind = ", ".join(f"{count} {kind}" for kind, count in cut.most_common())
        after: dict[int, list[int | None]] = {size: [] for size in LAPS}
        for loop in loops:
            after[len(loop.lap)].append(cut_after(rules, loop))
        honest = f"**{cut.total()}** ({by_kind})" if cut else "0"
        rows.append([name, honest, *map(_after, after.values())])
    return f"{said}\n\n{pages.table(head, rows)}"


def _after(found: Sequence[int | None]) -> str:
    known = [value for value in found if value is not None]
    missed = len(found) - len(known)
    middle = f"{statistics.median(known):,.0f}" if known else "–"
    return f"{middle}, {missed} never" if missed else middle


if __name__ == "__main__":
    sys.exit(main())
