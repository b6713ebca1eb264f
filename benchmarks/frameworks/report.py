"""What was seen of each framework, as the table of benchmarks/frameworks.md."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from benchmarks.frameworks.catalogue import Framework
from benchmarks.frameworks.scripted import Model, Use
from benchmarks.frameworks.tap import Seen
from tests.faults.table import commit

_TOLD = {"content", "tool_calls", "messages", "tools", "model"}


@dataclass(frozen=True)
class Run:
    """One run of a framework. `done`: whether its task was done."""

    framework: Framework
    version: str
    mode: str
    seen: Sequence[Seen]
    done: bool
    model: Model | None

    @property
    def chats(self) -> list[Seen]:
        return [one for one in self.seen if one.is_chat]

    @property
    def verdict(self) -> str:
        """`right`, or what is wrong."""
        return next(self._wrong(), "right")

    def _wrong(self) -> Iterator[str]:
        for one in self.seen:
            if broken := one.broken():
                yield f"wrong: it was given {broken}"
            if one.is_chat and one.status >= 400:
                yield f"wrong: it was given {one.status}"
        if not self.chats:
            yield "wrong: it asked for no chat completion"
        uses = any(isinstance(turn, Use) for turn in self.framework.turns)
        if uses and not any(self.framework.results(one.body) for one in self.chats):
            yield "wrong: no tool was called"
        if self.mode == "faults" and self.model is not None and not self.model.played:
            yield "wrong: no fault was played"
        if not self.done:
            yield "wrong: the task wasn't done"

    @property
    def endpoints(self) -> str:
        return ", ".join(sorted({f"`{one.method} {one.path}`" for one in self.seen}))

    @property
    def streamed(self) -> str:
        found = {bool(one.body.get("stream")) for one in self.chats}
        return "yes" if found == {True} else "both" if True in found else "no"

    @property
    def sessions(self) -> str:
        """Where the session's name came from, and how many there were where not one."""
        counts = {
            source: len({one.session for one in self.chats if one.session_source == source})
            for source in sorted({one.session_source for one in self.chats})
        }
        return ", ".join(
            f"`{source}`" + (f" × {count}" if count > 1 else "") for source, count in counts.items()
        )

    @property
    def work(self) -> str:
        """What the proxy did, in few words."""
        said = [one.outcome().said for one in self.chats if not one.left]
        retries = sum(int(one.get("retries", 0)) for one in said)
        escalated = sum("escalated_from" in one for one in said)
        repaired = sum("repairs" in one for one in said)
        parts = [f"{len(self.chats)} requests"]
        if self.model is not None and self.model.played:
            parts.append(f"{sum(self.model.played.values())} bad replies")
        for count, word in ((retries, "retried"), (escalated, "escalated"), (repaired, "mended")):
            if count:
                parts.append(f"{count} {word}")
        return ", ".join(parts)

    def requests(self) -> Iterator[str]:
        """Each request in a line: what was asked with, and what came."""
        for one in self.seen:
            asked = {key: value for key, value in one.body.items() if key not in _TOLD}
            tools = [tool["function"]["name"] for tool in one.body.get("tools") or ()]
            yield f"{one.method} {one.path} {one.body.get('model')} -> {one.status}"
            ours = {k: v for k, v in one.reply_headers.items() if k.startswith("x-mlx-stack")}
            yield f"    {ours}"
            yield f"    with {asked}, {len(tools)} tools {tools}, headers {one.headers}"
            if one.is_chat:
                roles = [message.get("role") for message in one.body.get("messages", ())]
                yield f"    {roles}"
                yield f"    {bytes(one.reply[-1500:])!r}{' (left)' if one.left else ''}"


def table(runs: Sequence[Run]) -> str:
    """The markdown."""
    system = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    lines = [
        f"`make frameworks`, {datetime.now(UTC).date()}, commit `{commit()}`, {system}:\n",
        "| framework | version | asks | streams | session | named | demo tiers | scripted "
        "| with faults |",
        "|" + "---|" * 9,
    ]
    for title in dict.fromkeys(run.framework.title for run in runs):
        own = {run.mode: run for run in runs if run.framework.title == title}
        first = own.get("scripted") or next(iter(own.values()))
        named = own["faults"].sessions if "faults" in own else ""
        cells = [title, first.version, first.endpoints, first.streamed, first.sessions, named]
        cells += [_cell(own.get(mode)) for mode in ("demo", "scripted", "faults")]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(run: Run | None) -> str:
    return "–" if run is None else f"{run.verdict}: {run.work}"
