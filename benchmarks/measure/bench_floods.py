"""What hostile or broken texts of a megabyte cost: ``python -m benchmarks.measure.bench_floods``.

Prints milliseconds of processor time a megabyte, the best of several rounds, and the exponent
fitted to half the text and the whole: 1.0 is linear. Ends with 1 if one is above `LIMIT`.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable

from mlx_stack_proxy.tool_validation.check import check_call
from mlx_stack_proxy.tool_validation.text_calls import Holdback, rescue
from tests.tool_validation.floods import FLOODS, MARKERS
from tests.tool_validation.test_check_fuzz import SHAPED
from tests.tool_validation.test_text_samples import TOOLS

ROUNDS = 5
LIMIT = 1.5
# Below this a text's time says more of the clock than of the rule.
LEAST_MS = 5.0


def milliseconds(function: Callable[[str], object], text: str) -> float:
    rounds = []
    for _ in range(ROUNDS):
        begun = time.process_time()
        function(text)
        rounds.append((time.process_time() - begun) * 1000)
    return min(rounds)


def in_pieces(text: str) -> None:
    """As a stream brings it: five characters a piece."""
    holdback = Holdback(TOOLS)
    for at in range(0, len(text), 5):
        holdback.feed(text[at : at + 5])
    holdback.finish()


def main() -> int:
    cases: list[tuple[str, Callable[[str], object], str]] = [
        (f"arguments: {name}", lambda text: check_call("edit_file", text, SHAPED), text)
        for name, text in FLOODS.items()
    ]
    cases += [
        (f"text: {mark!r}", lambda text: rescue(text, TOOLS), mark * (1_000_000 // len(mark)))
        for mark in MARKERS
    ]
    cases += [
        (f"stream: {start!r} and space", in_pieces, start + "\n    " * 40_000)
        for start in ("<tool_call>", "{", "", "```json")
    ]
    cases.append(("stream: prose", in_pieces, "The quick brown fox jumps. It was to\n" * 5_000))
    worst = 0.0
    print(f"{'':44} {'ms/MB':>8} {'exponent':>9}")
    for name, function, text in cases:
        half, whole = (milliseconds(function, text[: len(text) // part]) for part in (2, 1))
        exponent = math.log2(whole / half) if whole > LEAST_MS and half else 1.0
        worst = max(worst, exponent)
        print(f"{name[:44]:44} {whole * 1e6 / len(text):8.1f} {exponent:9.2f}")
    print(f"largest exponent {worst:.2f}, allowed {LIMIT}")
    return int(worst > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
