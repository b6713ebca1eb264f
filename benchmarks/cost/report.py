"""The report: tables in Markdown, as printed and as written into the docs. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from benchmarks import pages

from . import goals
from .bodies import LONG, SHORT
from .contestants import HTTPX, PROXY, STREAM_LIMIT
from .goals import UPSTREAM
from .measure import AXES, CONNECTIONS, FIRST_TEXT_SECONDS, REQUESTS, WINDOW
from .samples import Samples, Spread, spread_of

MARKER = "cost"  # in the documents
NOTHING = "–"
SETTINGS = (
    f"all defaults, but max_concurrency {STREAM_LIMIT}; for the growth: context_window {WINDOW:,}"
)
# Figures with their labels, and by what they are multiplied
COST = {
    **{f"cpu.{kind}": (f"{one.label} (ms)", 1e3) for kind, one in REQUESTS.items()},
    "cpu.chunk": (f"a streamed chunk ({SHORT} to {LONG}) (µs)", 1e6),
    "cpu.call-chunk": (f"… of a tool call ({SHORT} to {LONG}) (µs)", 1e6),
}
WALL = {
    **{f"wall.{kind}": (f"{one.label} (ms)", 1e3) for kind, one in REQUESTS.items()},
    "rate.plain": (f"plain requests/s, {CONNECTIONS} connections", 1),
}
PROCESS = {
    "rss.idle": ("RSS, idle (MB)", 1e-6),
    "rss.more": ("more with 1,000 streams open (MB)", 1e-6),
    "start.wall": ("start-up, until it answers (s)", 1),
    "start.cpu": ("… CPU of that (s)", 1),
}


def number(value: float) -> str:
    if abs(value) >= 10_000:
        return f"{value:,.0f}"
    if abs(value) >= 100:
        return f"{value:.0f}"
    if abs(value) >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if abs(value) >= 0.095 or value == 0 else f"{value:.3f}"


def spread(found: Spread | None, factor: float = 1) -> str:
    if found is None:
        return NOTHING
    middle = number(found.middle * factor)
    if found.count == 1:
        return middle
    return f"{middle} ({number(found.low * factor)}–{number(found.high * factor)})"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Without the rows that have nothing; empty where no row has anything."""
    kept = [row for row in rows if any(cell != NOTHING for cell in row[1:])]
    return pages.table(head, kept) if kept else ""


def cost_table(
    samples: Samples, names: Sequence[str], title: str, figures: Mapping[str, tuple[str, float]]
) -> str:
    """The medians, and the ratios to the yardstick with their range; the yardstick's own range."""

    def cell(name: str, figure: str, factor: float) -> str:
        found = samples.spread(name, figure)
        if found is None or name == HTTPX:
            return spread(found, factor)
        ratios = samples.ratios(name, HTTPX, figure)
        beside = f" · {spread(spread_of(ratios))} ×" if ratios else ""
        return number(found.middle * factor) + beside

    rows = (
        [label, *(cell(name, figure, factor) for name in names)]
        for figure, (label, factor) in figures.items()
    )
    return table([title, *names], rows)


def first_text_table(samples: Samples, names: Sequence[str]) -> str:
    """What is added to the upstream's own: of all rounds together, with the rounds' own range."""

    def cell(name: str, figure: str, part: float, alone: float | None) -> str:
        mine = samples.pooled(name, figure, part)
        if mine is None or alone is None:
            return NOTHING
        rounds = samples.added(name, UPSTREAM, figure, part)
        text = number((mine - alone) * 1e3)
        if len(rounds) > 1:
            text += f" ({number(min(rounds) * 1e3)}–{number(max(rounds) * 1e3)})"
        waiting = any(samples.values(name, figure.replace("first", "unanswered")))
        return f"≥ {text}" if waiting else text

    rows = []
    for streams in FIRST_TEXT_SECONDS:
        for part in (0.5, 0.99):
            figure = f"first.{streams}"
            alone = samples.pooled(UPSTREAM, figure, part)
            row = [f"p{part * 100:.0f}, {streams} stream{'s' * (streams > 1)}"]
            row.append(NOTHING if alone is None else number(alone * 1e3))
            rows.append([*row, *(cell(name, figure, part, alone) for name in names)])
    return table(["first text added (ms)", "upstream alone", *names], rows)


def process_table(samples: Samples, names: Sequence[str], open_streams: dict[str, int]) -> str:
    def cell(name: str, figure: str, factor: float) -> str:
        said = spread(samples.spread(name, figure), factor)
        streams = open_streams.get(name, 1000)
        fewer = figure == "rss.more" and said != NOTHING and streams != 1000
        return f"{said} with {streams}" if fewer else said

    rows = (
        [label, *(cell(name, figure, factor) for name in names)]
        for figure, (label, factor) in PROCESS.items()
    )
    return table(["memory and start", *names], rows)


def goals_table(samples: Samples) -> str:
    rows = []
    for goal in goals.judge(samples):
        limit = f"{'<' if goal.strict else '≤'} {number(goal.limit)} {goal.unit}"
        rows.append([goal.text, f"{spread(goal.spread)} {goal.unit}", limit, goal.verdict])
    return table(["", "measured", "goal", ""], rows)


def whole(samples: Samples, names: Sequence[str], open_streams: dict[str, int]) -> str:
    """All tables that have anything."""
    first = [name for name in names if samples.pooled(name, "first.1", 0.5) is not None]
    grown = [
        [f"{x:,} {axis.label}", spread(samples.spread(PROXY, axis.figure(x)), 1e3)]
        for axis in AXES
        for x in axis.xs
    ]
    parts = {
        "Against the goals": [goals_table(samples)],
        f"Cost, and × the {HTTPX} in the same round": [
            cost_table(samples, names, "CPU", COST),
            cost_table(samples, names, "wall, one request at a time", WALL),
        ],
        "First text": [first_text_table(samples, first)],
        "Memory and start": [process_table(samples, names, open_streams)],
        "Growth": [table(["CPU a request (ms)", PROXY], grown)],
    }
    full = {title: list(filter(None, tables)) for title, tables in parts.items()}
    return "\n\n".join("\n\n".join([f"### {k}", *tables]) for k, tables in full.items() if tables)
