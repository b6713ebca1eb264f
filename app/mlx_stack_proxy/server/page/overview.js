// The first view: how the night went, the tiers as they are, and what happened last.

import { changed, current, RANGES, seconds, to, USUAL_RANGE } from "./address.js";
import { get } from "./api.js";
import { h } from "./dom.js";
import { row, together } from "./exchanges.js";
import { PressurePlot, pressureSteps, TokensPlot } from "./plots.js";
import { Tiers } from "./tiers.js";

const LATEST = 6; // exchanges
const SLOW = 15_000; // milliseconds between two looks at what changes by the hour

export class Overview {
  constructor() {
    this.tiers = new Tiers();
    this.tokens = new TokensPlot();
    this.pressure = new PressurePlot();
    this.range = h("nav", { class: "range", "aria-label": "Time shown" });
    this.latest = h("ol", { class: "exchanges" });
    this.element = h("div", { class: "overview" },
      h("div", { class: "overview-head" }, this.range),
      this.tiers.element,
      h("div", { class: "plots" }, this.tokens.element, this.pressure.element),
      h("section", { class: "panel", "aria-labelledby": "latest-title" },
        h("h2", { id: "latest-title" }, "What happened last"), this.latest,
        h("p", { class: "more" }, h("a", { href: to("exchanges") }, "All that happened"))));
    this.slowAt = 0;
    this.slowFor = "";
  }

  async refresh(status) {
    const now = Date.now() / 1000;
    this.tiers.show(status, now);
    const { query } = current();
    const asked = query.toString();
    if (asked === this.slowFor && Date.now() - this.slowAt < SLOW) return;
    this.slowFor = asked;
    this.slowAt = Date.now();
    this.showRange(query);
    const since = Math.floor(now - seconds(query));
    const [latest, pressure] = await Promise.all([
      get("events", { limit: 60, since }),
      get("events", { kind: "pressure_changed", limit: 1000, since }),
    ]);
    this.showLatest(latest.events);
    this.pressure.element.hidden = status.memory_pressure === null;
    this.pressure.show(pressureSteps(pressure.events, status.memory_pressure?.level, since, Math.ceil(now)));
  }

  showRange(query) {
    const chosen = query.get("since") ?? USUAL_RANGE;
    this.range.replaceChildren(...Object.entries(RANGES).map(([value, text]) =>
      h("a", { href: changed("since", value), "aria-current": value === chosen ? "true" : null, "aria-label": text }, value)));
  }

  showLatest(events) {
    const groups = together(events).slice(0, LATEST);
    const print = JSON.stringify(groups);
    if (print === this.shown) return;
    this.shown = print;
    this.latest.replaceChildren(...groups.map(row));
    if (!groups.length) this.latest.append(h("li", { class: "empty" }, "Nothing had to be put right in this time."));
  }
}
