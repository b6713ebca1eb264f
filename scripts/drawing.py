"""Boxes and arrows as SVG: no fonts, no scripts, readable on light and dark pages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape

LINE_HEIGHT = 17
FILLS = {"plain": "#ffffff", "ours": "#dcebf7", "good": "#e0f2e3", "bad": "#f9e3e0"}
_HEAD = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" \
width="{width}" height="{height}" role="img" font-size="13" \
font-family="system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif">
<title>{title}</title>
<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" \
orient="auto"><path d="M0 0 10 5 0 10z" fill="#44566c"/></marker></defs>
<rect width="{width}" height="{height}" rx="8" fill="#fbfcfd" stroke="#d5dce3"/>
"""
_BADGE = """<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img" \
font-size="11" font-family="Verdana, Geneva, 'DejaVu Sans', sans-serif">
<title>{label}: {value}</title>
<rect width="{width}" height="20" rx="3" fill="#44566c"/>
<path d="M{left} 0h{right}q3 0 3 3v14q0 3 -3 3h-{right}z" fill="#2f7d46"/>
<text x="6" y="14" fill="#fff" textLength="{inner_left}">{label}</text>
<text x="{start}" y="14" fill="#fff" textLength="{inner_right}">{value}</text>
</svg>
"""


@dataclass(frozen=True, slots=True)
class Badge:
    """A label and its value, side by side, as README files have them."""

    label: str
    value: str

    def svg(self) -> str:
        """The whole file. The width of the text is set, so that any font fits."""
        inner_left, inner_right = (7 * len(text) for text in (self.label, self.value))
        left = inner_left + 12
        width = left + inner_right + 12
        return _BADGE.format(
            label=escape(self.label),
            value=escape(self.value),
            width=width,
            left=left,
            right=width - left - 3,
            start=left + 6,
            inner_left=inner_left,
            inner_right=inner_right,
        )


@dataclass
class Drawing:
    """A picture of ``width`` × ``height`` pixels; ``title`` is what a screen reader says."""

    title: str
    width: int
    height: int
    _parts: list[str] = field(default_factory=list)

    def box(self, place: tuple[int, int, int, int], text: str, kind: str = "plain") -> None:
        """A box with lines of text in its middle; the first one is bold where there are more.

        ``place``: x, y, width, height.
        """
        x, y, width, height = place
        self._parts.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" '
            f'fill="{FILLS[kind]}" stroke="#44566c"/>'
        )
        lines = text.split("\n")
        top = y + height / 2 - (len(lines) - 1) * LINE_HEIGHT / 2 + 4.5
        for number, line in enumerate(lines):
            bold = number == 0 and len(lines) > 1
            self._text(x + width / 2, top + number * LINE_HEIGHT, line, bold=bold)

    def arrow(self, *points: tuple[int, int], dashed: bool = False) -> None:
        """A line from point to point, with a head at its end."""
        path = " ".join(f"{x},{y}" for x, y in points)
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self._parts.append(
            f'<polyline points="{path}" fill="none" stroke="#44566c" stroke-width="1.4"{dash} '
            'marker-end="url(#head)"/>'
        )

    def note(self, x: int, y: int, text: str, anchor: str = "middle") -> None:
        """Small lines of text, the first one's base line at ``y``."""
        for number, line in enumerate(text.split("\n")):
            self._text(x, y + number * 15, line, small=True, anchor=anchor)

    def _text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        bold: bool = False,
        small: bool = False,
        anchor: str = "middle",
    ) -> None:
        style = ' font-weight="600"' if bold else ""
        style += ' font-size="12" fill="#3d4b5a"' if small else ' fill="#1c2733"'
        self._parts.append(
            f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"{style}>{escape(text)}</text>'
        )

    def svg(self) -> str:
        """The whole file."""
        head = _HEAD.format(title=escape(self.title), width=self.width, height=self.height)
        return head + "".join(self._lines()) + "</svg>\n"

    def _lines(self) -> Iterator[str]:
        return (part + "\n" for part in self._parts)
