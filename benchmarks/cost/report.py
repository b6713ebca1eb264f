"""The report: tables in Markdown, as printed and as written into the docs. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchmarks import pages

from . import goals, growth
from .bodies import LONG, SHORT
from .contestants import HTTPX, PROXY, STREAM_LIMIT
from .goals import UPSTREAM
from .measure import CONNECTIONS, FIRST_TEXT_SECONDS, REQUESTS
from .samples import Samples, Spread

MARKER = "cost"  # in the documents
NOTHING = "–"
SETTINGS = f"all defaults, but max_concurrency {STREAM_LIMIT}; {growth.SETTINGS_SAID}"


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


def with_ratio(samples: Samples, server: str, figure: str, factor: float) -> str:
    """The median, and its ratio to the yardstick with its range; the yardstick's own range."""
    found = samples.spread(server, figure)
    if found is None or server == HTTPX:
        return spread(found, factor)
    ratios = samples.ratios(server, HTTPX, figure)
    beside = f" · {spread(Spread.of(ratios))} ×" if ratios else ""
    return number(found.middle * factor) + beside


def cost_table(
    samples: Samples, names: Sequence[str], title: str, what: str, others: dict[str, str]
) -> str:
    """`what`: ``cpu`` or ``wall`` of requests. `others`: figures beside them, with their labels."""
    wanted = [(f"{what}.{kind}", f"{one.label} (ms)", 1e3) for kind, one in REQUESTS.items()]
    wanted += [(key, label, 1e6 if key.startswith("cpu") else 1) for key, label in others.items()]
    rows = [
        [label, *(with_ratio(samples, name, figure, factor) for name in names)]
        for figure, label, factor in wanted
    ]
    return table([title, *names], rows)


CHUNKS = {
    "cpu.chunk": f"a streamed chunk ({SHORT} to {LONG}) (µs)",
    "cpu.call-chunk": f"… of a tool call ({SHORT} to {LONG}) (µs)",
}
RATE = {"rate.plain": f"plain requests/s, {CONNECTIONS} connections"}


def first_text_table(samples: Samples, names: Sequence[str]) -> str:
    rows = []
    for streams in FIRST_TEXT_SECONDS:
        for part in (0.5, 0.99):
            alone = samples.pooled(UPSTREAM, f"first.{streams}", part)
            row = [f"p{part * 100:.0f}, {streams} stream{'s' * (streams > 1)}"]
            row.append(NOTHING if alone is None else number(alone * 1e3))
            rows.append([*row, *(_added(samples, name, streams, part) for name in names)])
    return table(["first text added (ms)", "upstream alone", *names], rows)


def _added(samples: Samples, name: str, streams: int, part: float) -> str:
    """Of all rounds together, with the rounds' own range."""
    figure = f"first.{streams}"
    mine, alone = samples.pooled(name, figure, part), samples.pooled(UPSTREAM, figure, part)
    if mine is None or alone is None:
        return NOTHING
    rounds = samples.added(name, UPSTREAM, figure, part)
    text = number((mine - alone) * 1e3)
    if len(rounds) > 1:
        text += f" ({number(min(rounds) * 1e3)}–{number(max(rounds) * 1e3)})"
    waiting = any(samples.values(name, f"unanswered.{streams}"))
    return f"≥ {text}" if waiting else text


def process_table(samples: Samples, names: Sequence[str], open_streams: dict[str, int]) -> str:
    def cell(name: str, figure: str, factor: float) -> str:
        said = spread(samples.spread(name, figure), factor)
        streams = open_streams.get(name, 1000)
        fewer = figure == "rss.more" and said != NOTHING and streams != 1000
        return f"{said} with {streams}" if fewer else said

    wanted = (
        ("RSS, idle (MB)", "rss.idle", 1e-6),
        ("more with 1,000 streams open (MB)", "rss.more", 1e-6),
        ("start-up, until it answers (s)", "start.wall", 1),
        ("… CPU of that (s)", "start.cpu", 1),
    )
    rows = [[label, *(cell(name, figure, by) for name in names)] for label, figure, by in wanted]
    return table(["memory and start", *names], rows)


def growth_table(samples: Samples) -> str:
    rows = [
        [f"{x:,} {axis.label}", spread(samples.spread(PROXY, axis.figure(x)), 1e3)]
        for axis in growth.AXES
        for x in axis.xs
    ]
    return table(["CPU a request (ms)", PROXY], rows)


def goals_table(samples: Samples) -> str:
    rows = []
    for goal in goals.judge(samples):
        limit = f"{'<' if goal.strict else '≤'} {number(goal.limit)} {goal.unit}".strip()
        rows.append([goal.text, f"{spread(goal.spread)} {goal.unit}".strip(), limit, goal.verdict])
    return table(["", "measured", "goal", ""], rows)


def whole(samples: Samples, names: Sequence[str], open_streams: dict[str, int]) -> str:
    """All tables that have anything."""
    first = [name for name in names if samples.pooled(name, "first.1", 0.5) is not None]
    parts = {
        "Against the goals": [goals_table(samples)],
        f"Cost, and × the {HTTPX} in the same round": [
            cost_table(samples, names, "CPU", "cpu", CHUNKS),
            cost_table(samples, names, "wall, one request at a time", "wall", RATE),
        ],
        "First text": [first_text_table(samples, first)],
        "Memory and start": [process_table(samples, names, open_streams)],
        "Growth": [growth_table(samples)],
    }
    full = {title: list(filter(None, tables)) for title, tables in parts.items()}
    return "\n\n".join("\n\n".join([f"### {k}", *tables]) for k, tables in full.items() if tables)
