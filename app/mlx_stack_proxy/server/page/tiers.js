// The tiers' present state.

import { count, h, pill, span } from "./dom.js";

/** Return a row for each tier of a status. `now`: seconds since 1970. */
export function tierRows(status, now) {
  return Object.entries(status.tiers).map(([name, tier]) =>
    row(name, tier, now, status.day?.by_tier[name]?.requests ?? 0));
}

function row(name, tier, now, served) {
  const { tone, word } = standing(tier, now);
  const model = [tier.model === name ? "" : tier.model, tier.local ? "" : "in the cloud"].filter(Boolean).join(" · ");
  return h("article", { class: "tier" },
    h("div", { class: "who" }, h("h3", null, name), h("span", { class: "note model" }, model)),
    h("div", { class: "state" }, pill(word, tone)),
    figure("Calls", `${tier.in_flight} of ${tier.max_concurrency}`),
    figure("Queue", count(tier.waiting), tier.waiting ? "warn" : null),
    figure("Tokens/s", tier.tokens_per_second ? tier.tokens_per_second.toFixed(1) : "–"),
    figure("Requests, 24 h", count(served)));
}

function figure(name, value, tone = null) {
  return h("div", { class: "figure" }, h("span", null, name), h("b", { class: tone }, value));
}

/** Return `{tone, word}` for a tier's state. */
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
