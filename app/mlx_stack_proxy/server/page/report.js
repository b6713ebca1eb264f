// The report on the chosen hours: its sentences, its advice, the agents, and what failed.

import { changed, current, to } from "./address.js";
import { count, h, panel, pill, span, when } from "./dom.js";
import { reason, titled } from "./words.js";

/** Return the sentences on the replies, of which the first is the headline. */
export function headline(report) {
  const lines = (about) => report.said.find((one) => one.about === about)?.lines;
  return lines("replies") ?? lines("requests") ?? ["Nobody asked for anything."];
}

export class Report {
  constructor() {
    this.said = h("dl", { class: "report" });
    this.saidPanel = panel("report-title", "Report", this.said);
    this.advice = h("ul", { class: "advice" });
    this.advicePanel = panel("advice-title", "Advice", this.advice);
    this.agents = h("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": "Table of agents" });
    this.agentsPanel = panel("agents-title", "Agents", this.agents);
    this.failures = h("ol", { class: "exchanges" });
    this.failuresPanel = panel("failures-title", "What failed after all", this.failures);
  }

  show(report) {
    // The first two sentences on the replies are in the headline; failures have their own list.
    const rest = (one) => (one.about === "replies" ? { ...one, lines: one.lines.slice(2) } : { ...one, lines: sentences(one.lines) });
    const said = report.said.map(rest).filter((one) => one.lines.length);
    fill(this.saidPanel, this.said, said.map((one) => h("div", null,
      h("dt", null, titled(one.about)), one.lines.map((line) => h("dd", null, line)))));
    fill(this.advicePanel, this.advice, report.advice.map((one) => h("li", null,
      h("p", null, one.says), one.line ? h("pre", { tabindex: "0" }, one.setting ? `# ${one.setting}\n${one.line}` : one.line) : "")));
    fill(this.failuresPanel, this.failures, [...report.failures].reverse().map(failure));
    this.showAgents(report);
  }

  showAgents(report) {
    const chosen = current().query.get("agent") ?? "";
    const rows = Object.entries(report.by_agent); // those with failures first
    this.agentsPanel.hidden = !rows.length && !chosen;
    const head = ["Agent", "Requests", "Right at once", "Put right", "Failed", "Loops broken", "Tokens", "Model time"];
    this.agents.replaceChildren(h("table", null,
      h("thead", null, h("tr", null, head.map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", null, rows.map(([name, counts]) => agent(name, counts, chosen)))));
    if (chosen) {
      this.agents.append(h("p", { class: "more" },
        h("a", { href: to("exchanges", "", { agent: chosen, since: current().query.get("since") }) }, "Its sessions and exchanges"),
        " · ", h("a", { href: changed("agent", "") }, "All agents")));
    }
  }
}

/** Return the lines without shell commands, and without the line before each command. */
function sentences(lines) {
  const command = (line) => line?.startsWith(" ");
  return lines.filter((line, place) => !command(line) && !command(lines[place + 1]));
}

/** Put elements into a panel, and hide the panel if there are none. */
function fill(panel, body, elements) {
  panel.hidden = !elements.length;
  body.replaceChildren(...elements);
}

function agent(name, counts, chosen) {
  const n = (field) => counts[field] ?? 0;
  const right = n("right_at_once") + n("confirmed");
  const failed = n("errors") + n("went_out_broken");
  const cells = [n("requests"), right, n("turns") - right - n("went_out_broken"), failed, n("loops_broken"), n("tokens_in") + n("tokens_out")];
  const shown = cells.map((cell, place) => h("td", { class: place === 3 && cell ? "bad" : null }, count(cell)));
  return h("tr", { class: name === chosen ? "chosen" : null },
    h("th", { scope: "row" }, h("a", { href: changed("agent", name === chosen ? "" : name) }, name)),
    shown, h("td", null, span(n("model_seconds"))));
}

function failure(one) {
  return h("li", null, h("a", { class: "row", href: to("exchange", one.request_id) },
    h("span", { class: "at" }, when(one.time)),
    h("span", { class: "end" }, pill(`Status ${one.status}`, "bad")),
    h("span", { class: "told" }, reason(one.type)),
    h("span", { class: "where note" }, [one.agent, one.tier, one.session.slice(0, 12)].filter(Boolean).join(" · "))));
}
