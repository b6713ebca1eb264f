// The view of exchanges that have events, newest first: it asks for a page of events at a time, and
// shows those of one request together.

import { changed, current, RANGES, seconds, to, USUAL_RANGE } from "./address.js";
import { get } from "./api.js";
import { count, counted, h, pill, when } from "./dom.js";
import { KINDS, told, word } from "./words.js";

const PAGE = 100; // events
const MOST_SESSIONS = 8; // offered as filters

export class Exchanges {
  constructor() {
    this.sessions = h("nav", { class: "sessions", "aria-label": "Sessions" });
    this.list = h("ol", { class: "exchanges" });
    this.foot = h("nav", { class: "pages", "aria-label": "Pages" });
    this.filters = h("form", { class: "filters", role: "search", onsubmit: (event) => this.search(event) });
    this.element = h("section", { class: "panel", "aria-labelledby": "exchanges-title" },
      h("h1", { id: "exchanges-title" }, "What happened"), this.filters, this.sessions, this.list, this.foot);
    this.shown = "";
  }

  /** Ask the proxy for the events that the address names, and show them if they have changed. */
  async refresh() {
    const { query } = current();
    const asked = this.asked(query);
    const found = await get("events", asked);
    const print = JSON.stringify([location.hash, found]);
    if (print === this.shown) return;
    this.shown = print;
    this.showFilters(query);
    this.showList(found.events);
    this.showFoot(found, query);
  }

  asked(query) {
    const asked = { limit: PAGE };
    for (const name of ["kind", "session", "agent", "before"]) asked[name] = query.get(name) ?? "";
    asked.since = Math.floor(Date.now() / 60_000) * 60 - seconds(query);
    return asked;
  }

  search(event) {
    event.preventDefault();
    const words = new FormData(this.filters);
    const given = words.get("session").trim();
    if (given.startsWith("req_")) location.hash = to("exchange", given);
    else location.hash = changed("session", given);
  }

  showFilters(query) {
    if (this.filters.contains(document.activeElement)) return; // somebody is choosing
    const chosen = (name, label, usual, options) => h("select", {
      name, "aria-label": label, onchange: (event) => { location.hash = changed(name, event.target.value); },
    }, Object.entries(options).map(([value, text]) =>
      h("option", { value, selected: value === (query.get(name) ?? usual) }, text)));
    const kinds = Object.fromEntries([["", "All kinds"], ...KINDS.map((kind) => [kind, word(kind)])]);
    const agent = query.get("agent");
    const clear = ["session", "kind", "agent", "before"].some((name) => query.get(name));
    this.filters.replaceChildren(
      chosen("since", "Time", USUAL_RANGE, Object.fromEntries(Object.entries(RANGES).map(([k, v]) => [k, `Last ${v}`]))),
      chosen("kind", "Kind of event", "", kinds),
      h("input", {
        name: "session", type: "search", placeholder: "Session, or a request's id", "aria-label": "Session, or a request's id",
        value: query.get("session") ?? "", spellcheck: "false", autocapitalize: "off",
      }),
      agent ? h("a", { href: changed("agent", ""), class: "chip", title: "All agents" }, agent, " ×") : "",
      clear ? h("a", { href: to("exchanges", "", { since: query.get("since") }), class: "clear" }, "Clear") : "",
    );
  }

  showList(events) {
    const focused = this.list.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    this.showSessions(events);
    const groups = together(events);
    this.list.replaceChildren(...groups.map(row));
    if (!groups.length) this.list.append(h("li", { class: "empty" }, "Nothing of that kind happened in this time."));
    if (focused) this.list.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus();
  }

  /** Offer the sessions of these events as filters, the busiest first. */
  showSessions(events) {
    const sessions = new Map();
    for (const event of events) {
      if (event.session) sessions.set(event.session, (sessions.get(event.session) ?? 0) + 1);
    }
    const busiest = [...sessions].sort(([, a], [, b]) => b - a).slice(0, MOST_SESSIONS);
    this.sessions.hidden = busiest.length < 2;
    this.sessions.replaceChildren(h("span", { class: "note" }, counted(sessions.size, "session")), ...busiest.map(([session, times]) =>
      h("a", { class: "chip", href: changed("session", session.slice(0, 12)) }, session.slice(0, 12), h("span", { class: "note" }, ` ${times}`))));
  }

  showFoot(found, query) {
    const { events } = found;
    const oldest = events[0]?.number;
    this.foot.replaceChildren(
      query.get("before") ? h("a", { href: changed("before", ""), class: "button" }, "Newest") : h("span"),
      h("span", { class: "note" }, events.length ? `${count(events.length)} of ${counted(found.total, "event")} shown` : ""),
      events.length === PAGE
        ? h("a", { href: withBefore(oldest), class: "button", rel: "next" }, "Older")
        : h("span"),
    );
  }
}

function withBefore(number) {
  const { query } = current();
  return to("exchanges", "", { ...Object.fromEntries(query), before: String(number) });
}

/** Group events by their request, newest first; an event of no request is a group alone. */
export function together(events) {
  const groups = folded([...events].reverse(), (event) => event.request_id || event.number);
  return groups.map((group) => group.reverse());
}

/** Return `[tone, word]` for how an exchange ended, as far as its events tell. */
export function ending(events) {
  const kinds = new Set(events.map((event) => event.kind));
  if (kinds.has("exhausted")) return ["bad", "Failed"];
  if (kinds.has("client_left")) return ["", "Client left"];
  if (kinds.has("recovered")) return ["good", "Recovered"];
  if (kinds.has("loop_break")) return ["warn", "Loop broken"];
  if (kinds.has("tool_call_repaired")) return ["good", "Mended"];
  if (kinds.has("budget_exceeded")) return ["warn", "Budget used up"];
  return ["", "Noted"];
}

export function row(events) {
  const last = events[events.length - 1];
  const inside = [
    h("span", { class: "at" }, when(last.time)),
    h("span", { class: "end" }, last.request_id ? pill(...[...ending(events)].reverse()) : alone(last)),
    h("span", { class: "told" }, sentences(events)),
    h("span", { class: "where note" }, [last.agent, last.tier, last.session?.slice(0, 12)].filter(Boolean).join(" · ")),
  ];
  if (!last.request_id) return h("li", null, h("div", { class: "row" }, inside));
  return h("li", null, h("a", { class: "row", href: to("exchange", last.request_id) }, inside));
}

const alone = (event) => pill(told(event).title, told(event).tone);

/** Return a line for each event; equal lines become one, with their number. */
function sentences(events) {
  const line = (event) => {
    const { title, text } = told(event);
    return event.request_id ? `${title}${text ? ": " + text : ""}` : text;
  };
  return folded(events, line).map((same) => h("span", null, line(same[0]), same.length > 1 ? ` (${same.length}×)` : ""));
}

/** Put items with the same key together, in the order of their first: a list of lists. */
export function folded(items, key) {
  const groups = new Map();
  for (const item of items) {
    const group = groups.get(key(item));
    if (group) group.push(item);
    else groups.set(key(item), [item]);
  }
  return [...groups.values()];
}
