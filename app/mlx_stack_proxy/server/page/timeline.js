// The timeline: for each hour, or day, a bar of its replies by how each came to be right, with the starts of
// the proxy, and outages below. The pointer or the arrow keys choose an hour to put into words.

import { count, h, moment, say, span } from "./dom.js";
import { axis, colour, named, Plot, summed } from "./plots.js";

const EDGE = 20; // pixels from an end of the axis, where a time would be cut off
const LEAST = 1 / 45; // of the plot's height, so that a single reply in a busy hour is seen

// The parts of a bar from the bottom up: the report's name for it, which is its CSS class too, and ours.
export const WAYS = [
  ["right", "right at once"],
  ["mended", "mended"],
  ["retried", "asked again"],
  ["moved", "next tier"],
  ["failed", "failed"],
  ["refused", "refused"],
];

/** Return how many exchanges came to each of `WAYS`. `parts`: the report's. */
export function byWay(parts) {
  return WAYS.map(([name]) => parts?.[name] ?? 0);
}

/** Return the bars: by five minutes if the report is about an hour or two, else by hours or days. */
function bars(report) {
  if (report.until - report.since > 7200 || !report.minutes?.length) return summed(report, (row) => byWay(row.parts));
  return report.minutes.map(({ time, parts }) => ({ from: time, to: time + 300, sums: byWay(parts) }));
}

export class Timeline extends Plot {
  constructor() {
    super("Timeline", 190);
    this.element.classList.add("timeline");
    this.note.setAttribute("aria-live", "polite");
    const said = { role: "img", tabindex: "0", "aria-label": "Replies over time; arrow keys choose a bar" };
    for (const [name, value] of Object.entries(said)) this.place.setAttribute(name, value);
    this.place.addEventListener("keydown", (event) => this.pressed(event));
    this.hit = h("div", { class: "hit" });
    this.lanes = h("div");
    this.place.after(this.lanes);
  }

  /** Show a report. `starts`: the events of the proxy's starts. */
  show(report, starts) {
    this.bins = bars(report);
    this.since = this.bins[0].from;
    this.end = this.bins.at(-1).to;
    this.starts = starts;
    this.most = Math.max(1, ...this.bins.map((bin) => bin.sums.reduce((a, b) => a + b)));
    const totals = byWay(report.parts);
    this.lanes.replaceChildren(...lanesOf(report.outages).map(([name, outages]) => this.lane(name, outages)));
    this.put([this.bins.map((bin) => bin.from), ...stacked(this.bins, this.most * LEAST)],
      WAYS.map(([name, text], place) => [name, count(totals[place]), text]));
  }

  options() {
    const bars = globalThis.uPlot.paths.bars({ size: [1, Infinity], gap: 4, align: 1 });
    const row = ([name]) => ({ stroke: colour("--panel"), fill: colour(`--s-${name}`), width: 1, paths: bars, points: { show: false } });
    return {
      padding: [8, 0, 0, 0],
      scales: { x: { range: () => [this.since, this.end] }, y: { range: () => [0, this.most * 1.12] } },
      axes: [axis({ size: 28, grid: { show: false }, values: times }), { show: false }],
      series: [{}, ...WAYS.map(row).reverse()],
      hooks: { draw: [(plot) => this.mark(plot)], setCursor: [(plot) => this.choose(plot)] },
    };
  }

  /** Mark the starts of the proxy. */
  mark(plot) {
    const marks = this.starts.map(({ time, detail }) => {
      const title = `Proxy started ${moment(time)}${detail?.killed ? ", after it was killed" : ""}`;
      const mark = h("div", { class: detail?.killed ? "start killed" : "start", title });
      mark.style.left = `${plot.valToPos(time, "x")}px`;
      return mark;
    });
    plot.over.replaceChildren(...marks);
    plot.under.replaceChildren(this.hit);
  }

  /** Put the bar under the pointer into words, and mark it. */
  choose(plot) {
    const time = plot.posToVal(plot.cursor.left, "x");
    this.chosen = this.bins.findIndex((bin) => bin.from <= time && time < bin.to);
    const bin = this.bins[this.chosen];
    this.hit.hidden = !bin;
    if (!bin) return say(this.note, "");
    const left = plot.valToPos(bin.from, "x");
    this.hit.style.left = `${left}px`;
    this.hit.style.width = `${plot.valToPos(bin.to, "x") - left}px`;
    const parts = WAYS.map(([, text], at) => [bin.sums[at], text]).filter(([n]) => n).map(([n, text]) => `${count(n)} ${text}`);
    say(this.note, `${named(bin)}: ${parts.join(", ") || "no replies"}`);
  }

  pressed(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const last = this.bins.length - 1;
    const { from, to } = this.bins[this.chosen < 0 ? last : Math.max(0, Math.min(last, this.chosen + step))];
    this.plot.setCursor({ left: this.plot.valToPos((from + Math.min(to, this.end)) / 2, "x"), top: 0 });
  }

  lane(name, outages) {
    const share = (seconds) => `${(100 * seconds) / (this.end - this.since)}%`;
    const bars = outages.map((one) => {
      const from = Math.max(this.since, one.since);
      const bar = h("div", { class: "outage", title: `${name} for ${span(one.seconds)} from ${moment(one.since)}` });
      bar.style.left = share(from - this.since);
      bar.style.width = share((one.until ?? this.end) - from);
      return bar;
    });
    const whole = outages.reduce((sum, one) => sum + one.seconds, 0);
    return h("div", { class: "lane" }, `${name}, ${span(whole)}`, bars);
  }
}

/** Return the texts of the axis for its times. `step`: seconds between two of them. */
function times(plot, all, place, space, step) {
  const written = globalThis.uPlot.fmtDate(step < 86400 ? "{HH}:{mm}" : "{D} {MMM}");
  const cut = (x) => x < EDGE || x > plot.over.clientWidth - EDGE;
  return all.map((time) => (cut(plot.valToPos(time, "x")) ? "" : written(new Date(time * 1000))));
}

/** Return for each part of the bars how high they are with it, the topmost part first. */
function stacked(bins, least) {
  const heights = bins.map((bin) => {
    let height = 0;
    return bin.sums.map((number) => (height += number && Math.max(number, least)));
  });
  return WAYS.map((_, way) => heights.map((one) => one[way])).reverse();
}

function lanesOf(outages) {
  const lanes = new Map();
  for (const one of outages) {
    const name = { litellm: "LiteLLM out of reach", store: "Store failing" }[one.what] ?? `${one.tier}: breaker open`;
    lanes.set(name, [...(lanes.get(name) ?? []), one]);
  }
  return [...lanes];
}
