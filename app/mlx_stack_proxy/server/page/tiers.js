// The tiers as they are now: a row for each, whose figures change in place.

import { count, h, pill, say, span, svg } from "./dom.js";

const SAMPLES = 60; // of tokens a second: two minutes of them
const WIDTH = 120;
const HEIGHT = 28;

export class Tiers {
  constructor() {
    this.body = h("div", { class: "tiers" });
    this.element = h(
      "section", { class: "panel", "aria-labelledby": "tiers-title" },
      h("h2", { id: "tiers-title" }, "Tiers"), this.body,
    );
    this.rows = new Map();
  }

  /** Show a status. `now`: seconds since 1970. */
  show(status, now) {
    for (const [name, row] of this.rows) {
      if (!(name in status.tiers)) {
        row.element.remove();
        this.rows.delete(name);
      }
    }
    for (const [name, tier] of Object.entries(status.tiers)) {
      let row = this.rows.get(name);
      if (!row) {
        row = new Row(name);
        this.rows.set(name, row);
        this.body.append(row.element);
      }
      row.show(tier, now, status.day?.by_tier[name]?.requests ?? 0);
    }
  }
}

class Row {
  constructor(name) {
    this.name = name;
    this.rates = [];
    this.model = h("span", { class: "note model" });
    this.state = h("div", { class: "state" });
    this.rate = h("b");
    this.line = svg("polyline", { fill: "none", class: "spark" });
    this.queue = h("b");
    this.slots = h("span", { class: "slots", "aria-hidden": "true" });
    this.calls = h("b");
    this.served = h("b");
    this.element = h(
      "article", { class: "tier" },
      h("div", { class: "who" }, h("h3", null, name), this.model),
      this.state,
      h("div", { class: "figure calls" }, h("span", null, "Calls"), h("div", null, this.calls, this.slots)),
      h("div", { class: "figure" }, h("span", null, "Queue"), this.queue),
      h("div", { class: "figure rate" }, h("span", null, "Tokens/s"), h("div", null, this.rate,
        svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "sparkline", "aria-hidden": "true" }, this.line))),
      h("div", { class: "figure" }, h("span", null, "Requests, 24 h"), this.served),
    );
  }

  show(tier, now, served) {
    const model = tier.model === this.name ? "" : tier.model;
    say(this.model, [model, tier.local ? "" : "in the cloud"].filter(Boolean).join(" · "));
    const { tone, word } = standing(tier, now);
    if (this.state.textContent !== word) this.state.replaceChildren(pill(word, tone));
    say(this.calls, `${tier.in_flight} of ${tier.max_concurrency}`);
    this.fill(tier.in_flight, tier.max_concurrency);
    say(this.queue, count(tier.waiting));
    this.queue.classList.toggle("warn", tier.waiting > 0);
    say(this.rate, tier.tokens_per_second ? tier.tokens_per_second.toFixed(1) : "–");
    say(this.served, count(served));
    this.rates = [...this.rates, tier.tokens_per_second].slice(-SAMPLES);
    this.draw();
  }

  fill(used, most) {
    const shown = Math.min(most, 8);
    while (this.slots.children.length < shown) this.slots.append(h("i"));
    while (this.slots.children.length > shown) this.slots.lastChild.remove();
    [...this.slots.children].forEach((slot, place) => {
      slot.classList.toggle("busy", place < Math.ceil((used / most) * shown));
    });
  }

  draw() {
    const most = Math.max(...this.rates, 1);
    const step = WIDTH / (SAMPLES - 1);
    const first = SAMPLES - this.rates.length;
    const points = this.rates.map((rate, place) => {
      const y = HEIGHT - 2 - (rate / most) * (HEIGHT - 4);
      return `${((first + place) * step).toFixed(1)},${y.toFixed(1)}`;
    });
    this.line.setAttribute("points", points.join(" "));
  }
}

/** How a tier stands: `{tone, word}`. */
export function standing(tier, now) {
  if (tier.state === "unreachable") return { tone: "bad", word: "Unreachable" };
  if (tier.state === "ok") {
    return tier.in_flight ? { tone: "good", word: "Working" } : { tone: "good", word: "Ready" };
  }
  if (tier.state !== "degraded") return { tone: "warn", word: tier.state.replaceAll("_", " ") };
  const left = (tier.degraded_until ?? 0) - now;
  if (left <= 0) return { tone: "warn", word: "Being tried again" };
  return { tone: "bad", word: `Out for ${span(Math.round(left))}` };
}
