// The timeline: for each hour a bar of its replies by how each came to be right, with the starts of
// the proxy, and outages below. The pointer or the arrow keys choose an hour to put into words.

import { count, h, moment, say, span, svg } from "./dom.js";

const HEIGHT = 150;
const LANE = 18;
const NAME = 150; // pixels of a lane's name
const NARROWEST = 9; // pixels of a bar; if hours are narrower, one bar stands for several
const BINS = [1, 2, 3, 6, 12, 24]; // hours

// The parts of a bar from the bottom up: CSS class, name, and the counters that the part adds up.
export const WAYS = [
  ["right", "right at once", ["right_at_once"]],
  ["mended", "mended", ["repaired", "found_in_text"]],
  ["retried", "asked again", ["retried_right", "confirmed"]],
  ["moved", "next tier", ["escalated_right"]],
  ["failed", "failed", ["errors"]],
];

/** Return how many replies there are of each of `WAYS`. `counts`: the report's counters. */
export function byWay(counts) {
  return WAYS.map(([, , names]) => names.reduce((sum, name) => sum + (counts[name] ?? 0), 0));
}

export class Timeline {
  constructor() {
    this.drawing = h("div", { class: "timeline" });
    this.said = h("p", { class: "note", "aria-live": "polite" });
    this.legend = h("ul", { class: "legend" });
    this.element = h("section", { class: "panel", "aria-labelledby": "timeline-title" },
      h("div", { class: "panel-head" }, h("h2", { id: "timeline-title" }, "Timeline"), this.said),
      this.drawing, this.legend);
    this.chosen = -1;
    new ResizeObserver(() => this.draw()).observe(this.drawing);
  }

  /** Show a report. `starts`: the events of the proxy's starts. */
  show(report, starts) {
    this.report = report;
    this.starts = starts;
    const totals = byWay(report.totals);
    this.legend.replaceChildren(...WAYS.map(([name, text], place) =>
      h("li", null, h("i", { class: name }), h("b", null, count(totals[place])), ` ${text}`)));
    this.draw();
  }

  draw() {
    const width = this.drawing.clientWidth;
    if (!this.report || !width) return;
    const { since, until } = this.report;
    const end = Math.max(until, since + 3600);
    const x = (time) => ((time - since) / (end - since)) * width;
    this.bins = binned(this.report, width);
    const most = Math.max(1, ...this.bins.map((bin) => bin.sum));
    const lanes = lanesOf(this.report.outages);
    // An outage is drawn beside its lane's name, or below it if the two would overlap.
    const first = Math.min(...this.report.outages.map((one) => x(one.since)));
    const tall = first < NAME ? 2 * LANE - 2 : LANE;
    const height = HEIGHT + lanes.length * tall + 24;
    const hadFocus = this.drawing.contains(document.activeElement);
    const drawn = svg("svg", {
      width, height, viewBox: `0 0 ${width} ${height}`, role: "img", tabindex: "0",
      "aria-label": "Replies by the hour; arrow keys choose one",
    });
    drawn.append(
      svg("line", { class: "axis", x1: 0, x2: width, y1: HEIGHT, y2: HEIGHT }),
      ...this.bins.map((bin) => column(bin, x, most)),
      ...lanes.flatMap(([name, outages], place) => lane(name, outages, HEIGHT + 4 + place * tall, x, end, tall)),
      ...this.starts.map((event) => start(event, x(event.time))),
      ...ticks(since, end, x, width, height),
    );
    drawn.addEventListener("pointermove", (event) => this.choose(this.binAt(event.offsetX / width)));
    drawn.addEventListener("pointerdown", (event) => this.choose(this.binAt(event.offsetX / width)));
    drawn.addEventListener("keydown", (event) => this.pressed(event));
    this.drawing.replaceChildren(drawn);
    if (hadFocus) drawn.focus();
    this.choose(this.chosen);
  }

  binAt(share) {
    const time = this.report.since + share * (Math.max(this.report.until, this.report.since + 3600) - this.report.since);
    return this.bins.findIndex((bin) => bin.from <= time && time < bin.to);
  }

  pressed(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const last = this.bins.length - 1;
    this.choose(this.chosen < 0 ? last : Math.max(0, Math.min(last, this.chosen + step)));
  }

  choose(place) {
    this.chosen = place;
    const columns = this.drawing.querySelectorAll(".column");
    columns.forEach((one, at) => one.classList.toggle("chosen", at === place));
    const bin = this.bins?.[place];
    if (!bin) return say(this.said, "");
    const parts = WAYS.map(([, text], at) => [bin.counts[at], text]).filter(([n]) => n).map(([n, text]) => `${count(n)} ${text}`);
    say(this.said, `${moment(bin.from).replace(/:00:00$/, ":00")}, ${span(bin.to - bin.from)}: ${parts.join(", ") || "no replies"}`);
  }
}

/** Return the bars `{from, to, counts, sum}`, of an hour or, if those are too many, of several. */
function binned(report, width) {
  const hours = Math.max(1, Math.ceil((report.until - report.since) / 3600));
  const size = BINS.find((one) => (width / hours) * one >= NARROWEST) ?? 24;
  const bins = [];
  for (let hour = 0; hour < hours; hour += size) {
    const from = report.since + hour * 3600;
    bins.push({ from, to: from + size * 3600, counts: WAYS.map(() => 0), sum: 0 });
  }
  for (const row of report.hours) {
    const bin = bins[Math.floor((row.hour - report.since) / 3600 / size)];
    if (!bin || !row.agent) continue;
    byWay(row.counts).forEach((number, way) => {
      bin.counts[way] += number;
      bin.sum += number;
    });
  }
  return bins;
}

function column(bin, x, most) {
  const left = x(bin.from);
  const wide = x(bin.to) - left;
  const gap = wide > 6 ? Math.min(4, wide * 0.2) : 1;
  const parts = [svg("rect", { class: "hit", x: left, y: 0, width: wide, height: HEIGHT })];
  let y = HEIGHT;
  bin.counts.forEach((number, way) => {
    if (!number) return;
    // At least 2 pixels, so that a single reply in a busy hour is seen.
    const tall = Math.max(2, (number / most) * (HEIGHT - 12));
    y -= tall;
    parts.push(svg("rect", { class: WAYS[way][0], x: left + gap / 2, y, width: Math.max(1, wide - gap), height: tall - (tall > 4 ? 1 : 0), rx: 1.5 }));
  });
  return svg("g", { class: "column" }, parts);
}

function lanesOf(outages) {
  const lanes = new Map();
  for (const one of outages) {
    const name = one.what === "litellm" ? "LiteLLM" : one.tier;
    lanes.set(name, [...(lanes.get(name) ?? []), one]);
  }
  return [...lanes];
}

function lane(name, outages, y, x, end, tall) {
  const bars = outages.map((one) => {
    const from = Math.max(0, x(one.since));
    const wide = Math.max(3, x(one.until ?? end) - from);
    return svg("rect", { class: "outage", x: from, y: y + tall - LANE + 4, width: wide, height: LANE - 8, rx: 3 },
      svg("title", null, `${name} down for ${span(one.seconds)} from ${moment(one.since)}`));
  });
  const whole = outages.reduce((sum, one) => sum + one.seconds, 0);
  return [...bars, svg("text", { class: "lane", x: 0, y: y + 13 }, `${name} down, ${span(whole)}`)];
}

function start(event, x) {
  const killed = event.detail?.killed;
  return svg("g", { class: killed ? "start killed" : "start" },
    svg("line", { x1: x, x2: x, y1: 4, y2: HEIGHT }),
    svg("path", { d: `M${x - 4},0 h8 l-4,6 z` }),
    svg("title", null, `Proxy started ${moment(event.time)}${killed ? ", after it was killed" : ""}`));
}

const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const DAY = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
const STEPS = [1 / 4, 1 / 2, 1, 2, 3, 6, 12, 24, 48, 96];

function ticks(since, end, x, width, height) {
  const hours = (end - since) / 3600;
  const step = STEPS.find((one) => (width / hours) * one >= 64) ?? 168;
  const format = step >= 24 ? DAY : CLOCK;
  const offset = new Date(since * 1000).getTimezoneOffset() * 60;
  const found = [];
  const first = Math.ceil((since - offset) / (step * 3600)) * step * 3600 + offset;
  for (let time = first; time <= end; time += step * 3600) {
    const at = x(time);
    if (at > width - 20) break;
    const anchor = at < 16 ? "start" : "middle";
    found.push(svg("text", { class: "tick", x: at, y: height - 4, "text-anchor": anchor }, format.format(time * 1000)));
  }
  return found;
}
