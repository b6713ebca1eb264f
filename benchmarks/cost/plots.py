"""The growth as a picture. matplotlib is in the extra `bench`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.cost import goals, growth
from benchmarks.cost.contestants import HTTPX, PROXY
from benchmarks.cost.samples import Samples

COLOURS = {PROXY: "#1f77b4", HTTPX: "#999999"}


def available() -> bool:
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return False
    return True


def draw(samples: Samples, file: Path) -> bool:
    """A panel for each axis that was measured; False where none was."""
    axes = [axis for axis in growth.AXES if goals.exponents(samples, PROXY, axis)]
    if not axes:
        return False
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    columns = min(3, len(axes))
    lines = -(-len(axes) // columns)
    figure, panels = pyplot.subplots(
        lines, columns, figsize=(4.2 * columns, 3.4 * lines), squeeze=False, layout="constrained"
    )
    for panel, axis in zip(panels.flat, axes, strict=False):
        _panel(panel, samples, axis)
    for panel in list(panels.flat)[len(axes) :]:
        panel.axis("off")
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=100, metadata={"Software": None})
    pyplot.close(figure)
    return True


def _panel(panel: Any, samples: Samples, axis: growth.Axis) -> None:
    for name in (HTTPX, PROXY):
        points = goals.curve(samples, name, axis)
        if not points:
            continue
        xs = list(points)
        least = [points[x].low * 1e3 for x in xs]
        more = [(points[x].high - points[x].low) * 1e3 for x in xs]
        fitted = goals.exponents(samples, name, axis)
        label = name
        if fitted:
            exponent = f"x^{fitted[0].exponent:.2f}" if fitted[0].factor else "flat"
            label = f"{name}: {exponent}"
            fine = [xs[0] * (xs[-1] / xs[0]) ** (step / 60) for step in range(61)]
            panel.plot(fine, [fitted[0](x) * 1e3 for x in fine], "--", lw=1, color=COLOURS[name])
        bars = [[0.0] * len(xs), more]  # up to the highest
        panel.errorbar(xs, least, bars, fmt="o", ms=4, capsize=2, color=COLOURS[name], label=label)
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.set_xticks(axis.xs, [f"{x:,}" for x in axis.xs], fontsize=8)
    panel.minorticks_off()
    _plain_ticks(panel)
    panel.set_xlabel(axis.label)
    panel.set_ylabel("CPU a request, ms")
    panel.grid(alpha=0.3, which="both")
    panel.legend(fontsize=8)


def _plain_ticks(panel: Any) -> None:
    """Milliseconds as plain numbers, in steps of 1, 2, 5, or finer where those are too few."""
    low, high = panel.get_ylim()
    shown: list[float] = []
    for digits in ((1, 2, 5), (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8)):
        steps = [digit * 10.0**power for power in range(-2, 4) for digit in digits]
        shown = [step for step in steps if low <= step <= high]
        if len(shown) >= 3:
            break
    panel.set_yticks(shown, [f"{step:g}" for step in shown], fontsize=8)
    panel.set_ylim(low, high)
