// The view of one exchange: its attempts, why they failed, what was mended and delivered.

import { to } from "./address.js";
import { get } from "./api.js";
import { count, counted, h, moment, pill, span, when } from "./dom.js";
import { ending, folded } from "./exchanges.js";
import { reason, told, word as words } from "./words.js";

export class ExchangeView {
  constructor(id) {
    this.id = id;
    this.element = h("article", { class: "exchange panel", "aria-busy": "true" }, h("p", { class: "note" }, "Loading …"));
    this.shown = "";
  }

  async refresh() {
    const found = await get(`exchanges/${encodeURIComponent(this.id)}`);
    const print = JSON.stringify(found);
    if (print === this.shown) return;
    this.shown = print;
    this.element.removeAttribute("aria-busy");
    this.element.replaceChildren(head(found), facts(found), ...attempts(found), rest(found));
  }
}

function head(found) {
  const [tone, word] = found.outcome ? outcome(found) : ending(found.events);
  return h("header", { class: "exchange-head" },
    h("p", { class: "trail" }, h("a", { href: to("exchanges") }, "What happened"), " / ",
      found.session ? h("a", { href: to("exchanges", "", { session: found.session.slice(0, 12), since: "14d" }) },
        `Session ${found.session.slice(0, 12)}`) : null),
    h("h1", null, h("code", null, found.request_id), " ", pill(word, tone)));
}

function outcome(found) {
  if (found.outcome === "ok") return found.attempts.length > 1 ? ["good", "Recovered"] : ["good", "Mended"];
  if (found.outcome === "client_left") return ["", "Client left"];
  return ["bad", `Failed: ${reason(found.outcome)}`];
}

function facts(found) {
  const facts = [];
  if (found.agent) facts.push(["Agent", found.agent]);
  if (found.time) facts.push(["When", when(found.time)]);
  if (found.attempts.length) {
    facts.push(["Attempts", count(found.attempts.length)]);
    facts.push(["Took", span(found.record?.seconds ?? found.attempts.reduce((sum, one) => sum + one.seconds, 0))]);
  }
  if (found.request) {
    facts.push(["Asked for", found.request.model || "–"]);
    facts.push(["Prompt", `${counted(found.request.messages, "message")}, ${counted(found.request.tools, "tool")}`]);
  } else if (found.record) {
    const { model, messages = 0, tools_offered: tools = 0 } = found.record;
    facts.push(["Asked for", model || "–"], ["Prompt", `${counted(messages, "message")}, ${counted(tools, "tool")}`]);
  }
  return h("dl", { class: "facts" }, facts.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))));
}

function attempts(found) {
  const shown = found.record ? [h("p", { class: "why" }, found.why)] : [];
  if (found.request?.last) {
    shown.push(h("section", { class: "said asked" }, h("h2", null, `Last message (${found.request.role})`), text(found.request.last)));
  }
  const list = runs(found.attempts).map((same) => attempt(same, found));
  if (list.length) shown.push(h("ol", { class: "attempts" }, list));
  if (!found.captured) {
    shown.push(h("p", { class: "note" }, "What was said is not kept. With ",
      h("code", null, "observability.capture_failures: true"), " the texts of failing and of mended exchanges stand here."));
  }
  return shown;
}

/** Number the attempts, and put those together that came one after the other to the very same. */
function runs(attempts) {
  const same = ({ time, seconds, silent, waited, tokens_in, tokens_out, then, ...rest }) => JSON.stringify(rest);
  const found = [];
  attempts.forEach((one, place) => {
    const run = found.at(-1);
    const numbered = { ...one, number: place + 1 };
    if (run && same(attempts[place - 1]) === same(one)) run.push(numbered);
    else found.push([numbered]);
  });
  return found;
}

/** Show attempts that came to the same: the number and time of each, and once what was said. */
function attempt(same, found) {
  const one = same.at(-1);
  const good = one.reason === null;
  const last = one.number === found.attempts.length;
  const numbers = same.length > 1 ? `Attempts ${same[0].number} to ${one.number}` : `Attempt ${one.number}`;
  const why = good ? (one.delivered ? "Mended and delivered" : "Delivered") : `Not delivered: ${reason(one.reason)}`;
  return h("li", { class: good ? "attempt good" : "attempt bad" },
    h("h2", null, `${numbers} · ${one.tier}`, " ", pill(why, good ? "good" : last && found.outcome !== "ok" ? "bad" : "warn")),
    h("p", { class: "note" }, [
      one.time ? `until ${moment(one.time)}` : "", same.map(({ seconds }) => span(seconds)).join(", "),
      one.status ? `status ${one.status}` : "",
    ].filter(Boolean).join(" · ")),
    whatWasWrong(one.verdict ?? { message: one.wrong }),
    one.written ? said(one) : null);
}

/** List what the verdict found wrong with a reply; null if nothing. */
function whatWasWrong(verdict) {
  if (!verdict) return null;
  const lines = (verdict.failures ?? []).map((one) => `${one.tool ? one.tool + ": " : ""}${one.error || one.kind}`);
  if (verdict.detector) lines.push(`${words(verdict.detector)}, ${counted(verdict.repeats, "time")}`);
  if (verdict.message) lines.push(verdict.message);
  if (verdict.limit) lines.push(`limit ${verdict.limit}`);
  return lines.length ? h("ul", { class: "wrong" }, lines.map((line) => h("li", null, line))) : null;
}

function said(one) {
  const { written, delivered } = one;
  const parts = [];
  if (written.reasoning) {
    parts.push(h("details", null, h("summary", null, `Reasoning, ${counted(written.reasoning.length, "character")}`), text(written.reasoning)));
  }
  if (delivered) {
    const before = whole(written);
    parts.push(h("div", { class: "said" }, h("h3", null, "What the model wrote, and what was changed"), marked(before, whole(delivered))));
    parts.push(h("div", { class: "said" }, h("h3", null, "What the client got"), text(whole(delivered))));
  } else {
    parts.push(h("div", { class: "said" }, h("h3", null, one.reason === null ? "What the client got" : "What the model wrote"),
      text(whole(written) || "(nothing)")));
  }
  if (one.cut_off) parts.push(h("p", { class: "note" }, "The reply was longer; its beginning is shown."));
  return parts;
}

/** Return a message as text: its content, then a line for each call. */
function whole(message) {
  const calls = message.tool_calls.map((call) => `→ ${call.name}(${call.arguments})`);
  return [message.text, ...calls].filter(Boolean).join("\n");
}

function text(words) {
  return h("pre", { tabindex: "0" }, words);
}

/** Show both texts in one: one deletion and insertion spans all the characters that differ. */
function marked(before, after) {
  const [old, now] = [[...before], [...after]];
  const most = Math.min(old.length, now.length);
  let start = 0;
  while (start < most && old[start] === now[start]) start += 1;
  let end = 0;
  while (end < most - start && old.at(-1 - end) === now.at(-1 - end)) end += 1;
  const between = (all) => all.slice(start, all.length - end).join("");
  const changes = [["del", between(old)], ["ins", between(now)]].filter(([, piece]) => piece);
  return h("pre", { tabindex: "0" },
    now.slice(0, start).join(""), changes.map(([tag, piece]) => h(tag, null, piece)), now.slice(now.length - end).join(""));
}

function rest(found) {
  if (!found.events.length) return h("p", { class: "note" }, "No event of it is kept any more.");
  const line = (same) => {
    const { title, text: more, tone } = told(same[0]);
    const times = same.length > 1 ? ` (${same.length}×)` : "";
    return h("li", null, h("span", { class: "at" }, when(same[0].time)), pill(title, tone),
      h("span", null, more, times), h("span", { class: "note" }, same[0].tier));
  };
  const groups = folded(found.events, (event) => JSON.stringify([told(event), event.tier]));
  return h("section", null, h("h2", null, "Events"), h("ol", { class: "events" }, groups.map(line)));
}
