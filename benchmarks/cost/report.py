"""The report: tables in Markdown, as printed and as written into the docs. No I/O."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks import machine

from . import goals, growth
from .bodies import LONG, SHORT
from .contestants import HTTPX, PROXY, STREAM_LIMIT
from .goals import UPSTREAM
from .measure import CONNECTIONS, FIRST_TEXT_SECONDS, REQUESTS
from .samples import Samples, Spread

MARKER = "cost"  # in the documents
NOTHING = "–"


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


def grid(rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table that is also one to the eye; the first row is its head."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        lines.append("| " + " | ".join(cells) + " |")
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def heading(about: dict[str, object]) -> str:
    """What was measured, where and when, and with which settings."""
    settings = "all defaults, but max_connections and max_concurrency"
    said = f"{settings} {STREAM_LIMIT}; {growth.settings_said()}"
    return machine.heading({**about, "settings": said})


def with_ratio(samples: Samples, server: str, figure: str, factor: float) -> str:
    """The median, and its ratio to the yardstick with its range; the yardstick's own range."""
    found = samples.spread(server, figure)
    if found is None or server == HTTPX:
        return spread(found, factor)
    ratios = samples.ratios(server, HTTPX, figure)
    beside = f" · {spread(Spread.of(ratios))} ×" if ratios else ""
    return number(found.middle * factor) + beside


def of_requests(samples: Samples, names: Sequence[str], figure: str) -> list[list[str]]:
    rows = []
    for kind, one in REQUESTS.items():
        cells = [with_ratio(samples, name, f"{figure}.{kind}", 1e3) for name in names]
        rows.append([f"{one.label} (ms)", *cells])
    return rows


def cost_table(samples: Samples, names: Sequence[str]) -> str:
    rows = [["CPU", *names], *of_requests(samples, names, "cpu")]
    for kind, what in (("chunk", "a streamed chunk"), ("call-chunk", "… of a tool call")):
        cells = (with_ratio(samples, name, f"cpu.{kind}", 1e6) for name in names)
        rows.append([f"{what} ({SHORT} to {LONG}) (µs)", *cells])
    return grid(measured(rows))


def wall_table(samples: Samples, names: Sequence[str]) -> str:
    rows = [["wall, one request at a time", *names], *of_requests(samples, names, "wall")]
    rate = f"plain requests/s, {CONNECTIONS} connections"
    rows.append([rate, *(with_ratio(samples, name, "rate.plain", 1) for name in names)])
    return grid(measured(rows))


def measured(rows: list[list[str]]) -> list[list[str]]:
    """Without the rows that have nothing."""
    return [rows[0], *(row for row in rows[1:] if any(cell != NOTHING for cell in row[1:]))]


def first_text_table(samples: Samples, names: Sequence[str]) -> str:
    rows = [["first text added (ms)", "upstream alone", *names]]
    for streams in FIRST_TEXT_SECONDS:
        for part in (0.5, 0.99):
            figure = f"first.{streams}"
            alone = samples.pooled(UPSTREAM, figure, part)
            row = [f"p{part * 100:.0f}, {streams} stream{'s' * (streams > 1)}"]
            row.append(NOTHING if alone is None else number(alone * 1e3))
            row += [_added(samples, name, streams, part) for name in names]
            rows.append(row)
    return grid(measured(rows))


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
    def row(label: str, figure: str, factor: float) -> list[str]:
        return [label, *(spread(samples.spread(name, figure), factor) for name in names)]

    more = row("more with 1,000 streams open (MB)", "rss.more", 1e-6)
    for place, name in enumerate(names, 1):
        if more[place] != NOTHING and open_streams.get(name, 1000) != 1000:
            more[place] += f" with {open_streams[name]}"
    rows = [
        ["memory and start", *names],
        row("RSS, idle (MB)", "rss.idle", 1e-6),
        more,
        row("start-up, until it answers (s)", "start.wall", 1),
        row("… CPU of that (s)", "start.cpu", 1),
    ]
    return grid(measured(rows))


def growth_table(samples: Samples) -> str:
    rows = [["CPU a request (ms)", "x", PROXY]]
    for axis in growth.AXES:
        for x in axis.xs:
            found = samples.spread(PROXY, growth.figure(axis.name, x))
            rows.append([axis.label, f"{x:,}", spread(found, 1e3)])
    return grid([rows[0], *(row for row in rows[1:] if row[2] != NOTHING)])


def goals_table(samples: Samples) -> str:
    rows = [["", "measured", "goal", ""]]
    for goal in goals.judge(samples):
        limit = f"{'<' if goal.strict else '≤'} {number(goal.limit)} {goal.unit}".strip()
        rows.append([goal.text, f"{spread(goal.spread)} {goal.unit}".strip(), limit, goal.verdict])
    return grid(rows) if len(rows) > 1 else ""


def whole(samples: Samples, names: Sequence[str], open_streams: dict[str, int]) -> str:
    """All tables."""
    first = [name for name in names if samples.pooled(name, "first.1", 0.5) is not None]
    parts = [
        "### Against the goals",
        goals_table(samples),
        f"### Cost, and × the {HTTPX} in the same round",
        cost_table(samples, names),
        wall_table(samples, names),
        "### First text",
        first_text_table(samples, first),
        "### Memory and start",
        process_table(samples, names, open_streams),
        "### Growth",
        growth_table(samples),
    ]
    return "\n\n".join(_without_empty(parts)) + "\n"


def _without_empty(parts: list[str]) -> list[str]:
    """Without tables of only a head, and without titles that nothing follows."""
    full = [part for part in parts if part and (part.startswith("#") or not _only_head(part))]
    following = [*full[1:], "#"]
    return [
        part
        for part, after in zip(full, following, strict=True)
        if not (part.startswith("#") and after.startswith("#"))
    ]


def _only_head(part: str) -> bool:
    return part.startswith("|") and part.count("\n") < 2
