// Plots over the chosen hours, drawn by uPlot: tokens, and memory pressure. What they have in common
// is here, too; `timeline.js` has the largest. A plot's legend has its totals; the pointer chooses a
// place, whose numbers stand in the plot's note.

import { count, h, moment, say, span } from "./dom.js";

const LEVELS = ["normal", "warning", "critical"];

export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** A plot in a figure. `options()` gives uPlot's options, again when the colours change. */
export class Plot {
  constructor(title, height = 140) {
    this.height = height;
    this.note = h("span", { class: "note" });
    this.place = h("div", { class: "plot" });
    this.legend = h("ul", { class: "legend" });
    this.element = h("figure", { class: "panel" },
      h("figcaption", null, h("h2", null, title), this.note), this.place, this.legend);
    this.data = null;
    this.plot = null;
    new ResizeObserver(() => this.resize()).observe(this.place);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  size() {
    return { width: Math.max(200, this.place.clientWidth), height: this.height };
  }

  /** Fit the plot to its place; draw it if it had no place until now. */
  resize() {
    if (this.plot && this.place.clientWidth) this.plot.setSize(this.size());
    else this.draw();
  }

  /** Show the data. `legend`: for each item its CSS class, its number, and the text after that. */
  put(data, legend) {
    this.data = data;
    this.legend.replaceChildren(...legend.map(([name, number, text]) =>
      h("li", null, h("i", { class: name }), h("b", null, number), ` ${text}`)));
    if (this.plot) this.plot.setData(data);
    else this.draw();
  }

  draw() {
    if (!this.data || !this.place.clientWidth) return;
    this.plot?.destroy();
    const usual = {
      cursor: { x: false, y: false, points: { show: false }, drag: { x: false, y: false } },
      legend: { show: false },
      hooks: { setCursor: [(plot) => this.choose(plot)] },
    };
    this.plot = new globalThis.uPlot({ ...this.size(), ...usual, ...this.options() }, this.data, this.place);
  }

  /** Put what is under the pointer into words. */
  choose(plot) {
    const time = plot.cursor.left >= 0 ? plot.posToVal(plot.cursor.left, "x") : null;
    say(this.note, time === null ? "" : this.words(time));
  }
}

/** Return the words for a bar's time: `09:00, 1 h`, or a day. */
export function named({ from, to }) {
  const day = { day: "numeric", month: "short" };
  if (to - from > 3600) return new Date(from * 1000).toLocaleDateString(undefined, day);
  return `${moment(from).replace(/:00:00$/, ":00")}, ${span(to - from)}`;
}

export function axis(more) {
  const line = { stroke: colour("--line"), width: 1 };
  return { stroke: colour("--quiet"), font: `12px ${getComputedStyle(document.body).fontFamily}`, grid: line, ticks: { show: false }, ...more };
}

export const TIME = axis => ({ ...axis, values: [
  [86400, "{D} {MMM}", null, null, null, null, null, null, 1],
  [3600, "{HH}:{mm}", "\n{D} {MMM}", null, null, null, null, null, 1],
  [60, "{HH}:{mm}", "\n{D} {MMM}", null, null, null, null, null, 1],
  [1, "{HH}:{mm}:{ss}", null, null, null, null, null, null, 1],
] });

// The spans of time that a bar stands for: hours, or from three days on this place's days.
const MOST_HOURS = 60;

/** Return the spans `{from, to}` of a report, in seconds since 1970. The first may begin before it. */
function spans(report) {
  const days = report.until - report.since > MOST_HOURS * 3600;
  const found = [];
  for (let from = days ? midnight(report.since) : report.since; found.length === 0 || from < report.until;) {
    const to = days ? midnight(from, 1) : from + 3600;
    found.push({ from, to });
    from = to;
  }
  return found;
}

function midnight(seconds, days = 0) {
  const at = new Date(seconds * 1000);
  return new Date(at.getFullYear(), at.getMonth(), at.getDate() + days).getTime() / 1000;
}

/** Return the spans with `sums`: what `numbers(row)`, a list, adds up to over the rows of each. */
export function summed(report, numbers) {
  const bins = spans(report).map((bin) => ({ ...bin, sums: numbers({ counts: {} }).map(() => 0) }));
  let place = 0;
  for (const row of [...report.hours].sort((a, b) => a.hour - b.hour)) {
    while (place < bins.length - 1 && row.hour >= bins[place].to) place += 1;
    numbers(row).forEach((number, at) => { bins[place].sums[at] += number; });
  }
  return bins;
}

export class TokensPlot extends Plot {
  constructor() {
    super("Tokens");
  }

  show(report) {
    const n = (row, field) => row.counts[field] ?? 0;
    this.bins = summed(report, (row) => [n(row, "tokens_in") + n(row, "tokens_out"), n(row, "tokens_out")]);
    const [both, out] = [0, 1].map((at) => this.bins.map((bin) => bin.sums[at]));
    const sum = (all) => count(all.reduce((a, b) => a + b, 0));
    this.put([this.bins.map((bin) => bin.from), both, out],
      [["in", sum(both), "read and written"], ["out", sum(out), "written"]]);
  }

  options() {
    const bars = globalThis.uPlot.paths.bars({ size: [0.7, 26], radius: 0.15, align: 1 });
    const row = (name) => ({ stroke: colour(name), fill: colour(name), paths: bars, points: { show: false } });
    return {
      // A bar begins at its hour, so that the last bar needs room up to its end.
      scales: { x: { time: true, range: () => [this.bins[0].from, this.bins.at(-1).to] }, y: { range: (_, __, most) => [0, Math.max(10, most * 1.1)] } },
      axes: [TIME(axis()), axis({ size: 56, values: (_, all) => all.map(count) })],
      series: [{}, row("--plot-in"), row("--plot-out")],
    };
  }

  words(time) {
    const bin = this.bins.find(({ from, to }) => from <= time && time < to);
    return bin ? `${named(bin)}: ${count(bin.sums[0])} read and written, ${count(bin.sums[1])} written` : "";
  }
}

export class PressurePlot extends Plot {
  constructor() {
    super("Memory pressure");
  }

  /** Show the levels from `from` to `to`. `events`: the changes; `level`: now. */
  show(events, level, from, to) {
    const levels = [events[0]?.detail.from ?? level, ...events.map((event) => event.detail.to)];
    const numbers = [...levels, levels.at(-1)].map((one) => Math.max(0, LEVELS.indexOf(one)));
    this.put([[from, ...events.map((event) => event.time), to], numbers], [["level", level ?? "–", "now"]]);
  }

  options() {
    return {
      scales: { x: { time: true }, y: { range: [-0.15, 2.2] } },
      axes: [TIME(axis()), axis({ size: 64, splits: [0, 1, 2], values: (_, all) => all.map((v) => LEVELS[v] ?? "") })],
      series: [
        {},
        {
          stroke: colour("--warn"), fill: colour("--warn-soft"), width: 2, points: { show: false },
          paths: globalThis.uPlot.paths.stepped({ align: 1 }),
        },
      ],
    };
  }

  words(time) {
    const [times, levels] = this.data;
    return `${moment(time)}: ${LEVELS[levels[times.findLastIndex((one) => one <= time)]] ?? "–"}`;
  }
}
