// The first view: the report on the chosen hours, the tiers, plots, and the latest exchanges.

import { changed, current, RANGES, seconds, to, USUAL_RANGE } from "./address.js";
import { get } from "./api.js";
import { h, panel } from "./dom.js";
import { row, together } from "./exchanges.js";
import { PressurePlot, TokensPlot } from "./plots.js";
import { headline, Report } from "./report.js";
import { wrong } from "./standing.js";
import { tierRows } from "./tiers.js";
import { Timeline } from "./timeline.js";

const LATEST = 6; // exchanges
const SLOW = 15_000; // milliseconds between two requests for the report and the events

export class Overview {
  constructor() {
    this.title = h("h1");
    this.more = h("p");
    this.range = h("nav", { class: "range", "aria-label": "Time shown" });
    this.notices = h("ul", { class: "notices", role: "alert" });
    this.tiers = h("div", { class: "tiers" });
    this.timeline = new Timeline();
    this.report = new Report();
    this.tokens = new TokensPlot();
    this.pressure = new PressurePlot();
    this.latest = h("ol", { class: "exchanges" });
    this.element = h("div", { class: "overview", "aria-busy": "true" },
      h("div", { class: "overview-head" }, h("div", null, this.title, this.more), this.range),
      this.notices,
      this.timeline.element,
      panel("tiers-title", "Tiers", this.tiers),
      h("div", { class: "pair" }, this.report.saidPanel, this.report.advicePanel),
      this.report.agentsPanel,
      h("div", { class: "pair" }, this.tokens.element, this.pressure.element),
      this.report.failuresPanel,
      panel("latest-title", "What happened last", this.latest,
        h("p", { class: "more" }, h("a", { href: to("exchanges") }, "All that happened"))));
    this.slowAt = 0;
    this.slowFor = null;
  }

  async refresh(status) {
    const now = Date.now() / 1000;
    this.tiers.replaceChildren(...tierRows(status, now));
    this.showNotices(status);
    const { query } = current();
    const asked = query.toString();
    if (asked === this.slowFor && Date.now() - this.slowAt < SLOW) return;
    const agent = query.get("agent") ?? "";
    const since = Math.floor(now - seconds(query));
    const [report, latest, pressure, starts] = await Promise.all([
      get("report", { since, agent }),
      get("events", { limit: 60, since, agent }),
      get("events", { kind: "pressure_changed", limit: 1000, since }),
      get("events", { kind: "started", limit: 50, since }),
    ]);
    this.element.removeAttribute("aria-busy");
    this.slowFor = asked;
    this.slowAt = Date.now();
    this.showHead(report, query);
    this.timeline.show(report, starts.events);
    this.report.show(report);
    this.tokens.show(report);
    this.showLatest(latest.events);
    this.pressure.element.hidden = status.memory_pressure == null;
    this.pressure.show(pressure.events, status.memory_pressure?.level, report.since, Math.ceil(now));
  }

  /** List the problems that an operator should look at. */
  showNotices(status) {
    const told = wrong(status);
    const print = JSON.stringify(told);
    if (print === this.noticed) return;
    this.noticed = print;
    this.notices.hidden = !told.length;
    this.notices.replaceChildren(...told.map(({ tone, text }) => h("li", { class: tone }, text)));
  }

  showHead(report, query) {
    const [first, second = ""] = headline(report);
    this.title.textContent = first;
    const agent = query.get("agent");
    this.more.textContent = [agent ? `Only ${agent}.` : "", second].filter(Boolean).join(" ");
    const chosen = query.get("since") ?? USUAL_RANGE;
    this.range.replaceChildren(...Object.entries(RANGES).map(([value, text]) =>
      h("a", { href: changed("since", value), "aria-current": value === chosen ? "true" : null, title: `The last ${text}` }, value)));
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
