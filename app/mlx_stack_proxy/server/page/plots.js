// Plots over the chosen hours, drawn by uPlot: tokens by the hour, and memory pressure. What they
// have in common is here, too; `timeline.js` has the largest.

import { count, h } from "./dom.js";

const LEVELS = { normal: 0, warning: 1, critical: 2 };

export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** A plot in a figure. `options()` gives uPlot's options, again when the colours change. */
export class Plot {
  constructor(title, note, height = 140) {
    this.height = height;
    this.note = h("span", { class: "note" }, note);
    this.place = h("div", { class: "plot" });
    this.element = h("figure", { class: "panel" }, h("figcaption", null, h("h2", null, title), this.note), this.place);
    this.data = null;
    this.plot = null;
    new ResizeObserver(() => this.plot?.setSize(this.size())).observe(this.place);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  size() {
    return { width: Math.max(200, this.place.clientWidth), height: this.height };
  }

  show(data) {
    const print = JSON.stringify(data);
    if (print === this.print) return;
    this.print = print;
    this.data = data;
    if (this.plot) this.plot.setData(data);
    else this.draw();
  }

  draw() {
    if (!this.data || !this.place.clientWidth) {
      this.print = "";
      return;
    }
    this.plot?.destroy();
    this.plot = new globalThis.uPlot({ ...this.size(), ...this.options() }, this.data, this.place);
  }
}

export function axis(more) {
  const line = { stroke: colour("--line"), width: 1 };
  return { stroke: colour("--quiet"), font: `12px ${getComputedStyle(document.body).fontFamily}`, grid: line, ticks: { show: false }, ...more };
}

const CURSOR = { y: false, points: { size: 6 }, drag: { x: false, y: false } };
export const TIME = axis => ({ ...axis, values: [
  [86400, "{D} {MMM}", null, null, null, null, null, null, 1],
  [3600, "{HH}:{mm}", "\n{D} {MMM}", null, null, null, null, null, 1],
  [60, "{HH}:{mm}", "\n{D} {MMM}", null, null, null, null, null, 1],
  [1, "{HH}:{mm}:{ss}", null, null, null, null, null, null, 1],
] });

export class TokensPlot extends Plot {
  constructor() {
    super("Tokens", "by the hour");
  }

  options() {
    const bars = globalThis.uPlot.paths.bars({ size: [0.7, 26], radius: 0.15, align: 1 });
    const row = (label, name) => ({ label, stroke: colour(name), fill: colour(name), paths: bars, points: { show: false }, value: (_, v) => count(v) });
    return {
      cursor: CURSOR,
      // A bar begins at its hour, so that the last bar needs room for one hour more.
      scales: { x: { time: true, range: (_, first, last) => [first, last + 3600] }, y: { range: (_, __, most) => [0, Math.max(10, most * 1.1)] } },
      axes: [TIME(axis()), axis({ size: 56, values: (_, all) => all.map(count) })],
      series: [{ label: "Hour", value: "{HH}:{mm}" }, row("in and out", "--plot-in"), row("out", "--plot-out")],
    };
  }
}

export class PressurePlot extends Plot {
  constructor() {
    super("Memory pressure", "of this machine");
  }

  options() {
    const tick = ["normal", "warning", "critical"];
    return {
      cursor: CURSOR,
      scales: { x: { time: true }, y: { range: [-0.15, 2.2] } },
      axes: [TIME(axis()), axis({ size: 64, splits: [0, 1, 2], values: (_, all) => all.map((v) => tick[v] ?? "") })],
      series: [
        { label: "Time", value: "{D} {MMM} {HH}:{mm}" },
        {
          label: "level", stroke: colour("--warn"), fill: colour("--warn-soft"), width: 2, points: { show: false },
          paths: globalThis.uPlot.paths.stepped({ align: 1 }), value: (_, v) => tick[v] ?? "–",
        },
      ],
    };
  }
}

/** Return times and levels from `from` to `to`. `events`: the changes; `level`: now. */
export function pressureSteps(events, level, from, to) {
  const times = [from];
  const levels = [LEVELS[events[0]?.detail.from ?? level] ?? 0];
  for (const event of events) {
    times.push(event.time);
    levels.push(LEVELS[event.detail.to] ?? 0);
  }
  times.push(to);
  levels.push(levels[levels.length - 1]);
  return [times, levels];
}
